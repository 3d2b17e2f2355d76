"""From schedules to loop IR, and from graphs to execution plans."""
