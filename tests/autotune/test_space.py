"""Every point that mutation reaches has a text, and every text is a schedule of the operator."""

from __future__ import annotations

import random

import diptych as dt
import pytest
from diptych.autotune.space import LoopSpace
from diptych.codegen.host import machine


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (
            "blur(image: f32[H, W, C]) -> out:\n"
            "  rows[y,x,c] = image[y,x,c] + image[y,x+1,c]\n"
            "  out[y,x,c] = rows[y,x,c] + rows[y+1,x,c]",
            {"H": 427, "W": 640, "C": 3},
        ),
        ("y[n,f,h,v] = max(x[n,f,h,v], 0)", {"N": 64, "F": 16, "H": 6, "V": 6}),
        ("c[i,j] = sum(a[i,k] * b[k,j])", {"I": 64, "J": 48, "K": 64}),
        ("m[i] = max(x[i,j])\ny[i,j] = x[i,j] - m[i]", {"I": 64, "J": 48}),
    ],
)
def test_mutations_have_texts(text: str, sizes: dict[str, int]) -> None:
    op = dt.op(text)
    space = LoopSpace(op, dict.fromkeys((p.name for p in op.params), dt.f32), sizes, machine())
    rng, texts, point = random.Random(0), set(), space.default()
    width = len(space.features(point))
    for n in range(80):
        point = space.mutate(point, rng) if n % 20 else space.sample(rng)
        texts.add(space.text(point))
        assert len(space.features(point)) == width
    assert None not in texts and len(texts) > 10
    for candidate in sorted(t for t in texts if t)[:5]:
        dt.Schedule.parse(op, candidate).nest(None, sizes)
