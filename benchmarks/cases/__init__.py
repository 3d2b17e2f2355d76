"""The cases, by family."""

from . import comprehensions, contractions, convolutions, own, rows

CASES = (
    *contractions.CASES, *convolutions.CASES, *rows.CASES, *comprehensions.CASES, *own.CASES
)  # fmt: skip
