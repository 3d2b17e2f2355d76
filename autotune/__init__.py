"""The autotuner: search over loop and graph schedules, isolated measurement, records, commands."""
