"""A 3 x 3 box blur of an image with channels last, as two equations: rows, then columns."""

from __future__ import annotations

import diptych as dt

blur = dt.op(
    """
    blur(image: f32[H, W, C]) -> out:
        rows[y,x,c] = (image[y,x,c] + image[y,x+1,c] + image[y,x+2,c]) / 3
        out[y,x,c]  = (rows[y,x,c] + rows[y+1,x,c] + rows[y+2,x,c]) / 3
    """
)
