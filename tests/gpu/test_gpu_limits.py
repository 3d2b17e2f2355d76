"""Launches beyond a GPU's limits are refused before anything is compiled, by the loops' names."""

from __future__ import annotations

import pytest
from diptych.algo.errors import DeviceError
from diptych.codegen.gpu_limits import LIMITS, Layout, layout
from diptych.codegen.nvptx import compile_ptx
from diptych.lower.ir import allocated
from diptych.lower.ir_parse import parse_function


def refusal(function: object, target: str) -> str:
    with pytest.raises(DeviceError) as refused:
        compile_ptx(function, target)  # type: ignore[arg-type]
    return str(refused.value)


def test_threads_of_a_block(prepare):  # R14
    function = prepare("""
function f(A: param f32[256, 256], Y: param f32[256, 256]):
    for i_outer in 0 .. 4 block.y:
        for j_outer in 0 .. 8 block.x:
            for i_inner in 0 .. 64 thread.y:
                for j_inner in 0 .. 32 thread.x:
                    Y[i_outer*64 + i_inner, j_outer*32 + j_inner] = \
A[i_outer*64 + i_inner, j_outer*32 + j_inner] + 1.0:f32
""")
    assert refusal(function, "sm_80") == (
        "loops i_inner (thread.y, 64) and j_inner (thread.x, 32) give 64*32=2048 threads a block, "
        "and sm_80 allows 1024; split them by smaller factors"
    )


@pytest.mark.parametrize("axis", ["block.y", "block.z"])
def test_grid_extents(prepare, axis):  # R68
    function = prepare(f"""
function f(A: param u8[65537, 32], Y: param u8[65537, 32]):
    for j in 0 .. 65537 {axis}:
        for i in 0 .. 32 thread.x:
            Y[j, i] = A[j, i] * 2:u8
""")
    assert refusal(function, "sm_80") == (
        f"loop j gives 65537 blocks on {axis}, and sm_80 allows 65535; bind it to block.x, "
        f"which allows 2147483647"
    )


def test_grid_extent_x_is_large(prepare):
    function = prepare("""
function f(Y: param u8[65537]):
    for j in 0 .. 65537 block.x:
        Y[j] = 2:u8
""")
    assert compile_ptx(function, "sm_80").kernels[0].grid == (65537, 1, 1)


def test_thread_extents(prepare):
    function = prepare("""
function f(Y: param u8[128]):
    for j in 0 .. 128 thread.z:
        Y[j] = 2:u8
""")
    assert refusal(function, "sm_90") == (
        "loop j gives 128 threads on thread.z, and sm_90 allows 64; bind it to thread.x, which "
        "allows 1024"
    )


TILES = """
function f(A: param f32[128, 64], B: param f32[64, 128], Y: param f32[128, 128]):
    for b in 0 .. 1 block.x:
        alloc A.shared: shared f32[2, 128, 64]:
            alloc B.shared: shared f32[2, 64, 128]:
                for t in 0 .. 128 thread.x:
                    A.shared[0, t, 0] = A[t, 0]
                    B.shared[0, 0, t] = B[0, t]
                    Y[t, t] = A.shared[0, t, 0] * B.shared[0, 0, t]
"""


def test_shared_memory(prepare):  # R69
    function = prepare(TILES)
    assert compile_ptx(function, "sm_80").kernels[0].dynamic == 131072
    assert refusal(function, "sm_86") == (
        "the shared buffers of a block need 131072 bytes (A.shared 65536, B.shared 65536), and "
        "sm_86 allows 101376; stage smaller tiles"
    )


def test_padding_between_shared_buffers_counts():
    function = parse_function("""
function f(x: param f32[4]):
    alloc A: shared i8[3], B: shared f64[2]:
        x[0] = 1.0:f32
""")
    assert layout(list(allocated(function.body))) == Layout({"A": 0, "B": 16}, 32, 16)


def test_limits_are_those_of_the_guide():
    assert {t: LIMITS[t].opt_in // 1024 for t in ("sm_75", "sm_80", "sm_86", "sm_90")} == {
        "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_90": 227,
    }  # fmt: skip
