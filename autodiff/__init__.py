"""Derivatives of operators and programs: ordinary operators and ordinary graph again."""
