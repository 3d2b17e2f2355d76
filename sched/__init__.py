"""The right panels: loop schedules of operators, graph schedules of programs."""
