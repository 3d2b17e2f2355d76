"""Convolutions, and their gradients."""

from __future__ import annotations

from typing import Any

from case import Case, floats


def conv(
    name: str, inner: int, outer: int, side: int, taps: int, stride: int = 1, batch: int = 1
) -> Case:
    """A convolution of images, whose borders are zero; also 3 x 3 of side/stride results."""
    pad, out = taps // 2, side // stride
    row, col = (f"{stride}*{i}" if stride > 1 else i for i in "pq")
    text = (
        f"conv(x: [N, C, {side}, {side}], w: [F, C, {taps}, {taps}]) -> y:\n"
        f"    y[n,f,p,q] = sum(x.zero[n,c,{row}+r-{pad},{col}+s-{pad}] * w[f,c,r,s])"
        f" where p in 0:{out}, q in 0:{out}"
    )
    if taps == 1:
        text = "y[n,f,p,q] = sum(x[n,c,p,q] * w[f,c])"

    def jax(jnp: Any, x: Any, w: Any) -> Any:
        from jax.lax import conv_general_dilated

        w = w[:, :, None, None] if taps == 1 else w
        return conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2)

    return Case(
        name,
        text,
        lambda rng: (
            floats(rng, batch, inner, side, side),
            floats(rng, outer, inner, *((taps, taps) if taps > 1 else ())),
        ),
        operations=2 * batch * inner * outer * out**2 * taps**2,
        torch=lambda torch, x, w: torch.nn.functional.conv2d(
            x, w[..., None, None] if taps == 1 else w, stride=stride, padding=pad
        ),
        jax=jax,
    )


def _grouped(jnp: Any, x: Any, w: Any, groups: int) -> Any:
    from jax.lax import conv_general_dilated

    return conv_general_dilated(x, w, (1, 1), [(1, 1)] * 2, feature_group_count=groups)


CASES = [
    conv("conv3-64x56", 64, 64, 56, 3),
    conv("conv3-256x14", 256, 256, 14, 3),
    conv("conv1-256x56", 256, 64, 56, 1),
    conv("conv7-3x224", 3, 64, 224, 7, stride=2),
    Case(
        "depthwise-128x56",
        """
        depthwise(x: [N, C, H, W], w: [C, 3, 3]) -> y:
            y[n,c,p,q] = sum(x.zero[n,c,p+r-1,q+s-1] * w[c,r,s]) where p in 0:H, q in 0:W
        """,
        lambda rng: (floats(rng, 1, 128, 56, 56), floats(rng, 128, 3, 3)),
        operations=2 * 128 * 56 * 56 * 9,
        torch=lambda torch, x, w: torch.nn.functional.conv2d(
            x, w[:, None], padding=1, groups=128
        ),
        jax=lambda jnp, x, w: _grouped(jnp, x, w[:, None], 128),
    ),
]  # fmt: skip
