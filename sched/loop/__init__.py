"""Loop schedules: primitives over a loop tree, each proved legal or refused with a witness."""
