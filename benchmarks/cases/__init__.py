"""The cases, by family."""

from . import comprehensions, contractions, convolutions, gradients, own, rows

CASES = (
    *contractions.CASES, *convolutions.CASES, *rows.CASES, *comprehensions.CASES, *own.CASES,
    *gradients.CASES,
)  # fmt: skip
