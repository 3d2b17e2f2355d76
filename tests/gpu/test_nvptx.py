"""PTX text: what it holds, and that ptxas takes it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from diptych.algo.errors import DeviceError
from diptych.codegen.nvptx import Kernel, compile_ptx, ptx
from diptych.codegen.ptxas import assemble, find_ptxas

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="ptxas was not found")
TARGETS = ("sm_80", "sm_90")


@needs_ptxas
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes", [(1024, 1024, 1024), (50, 40, 70)])
def test_ptxas_takes_the_matmul(matmul, prepare, target, sizes):
    made = assemble(ptx(prepare(matmul(*sizes)), target), target)
    assert made.cubin[:4] == b"\x7fELF"
    assert made.spills == 0


def test_what_the_matmul_is(matmul, prepare):
    module = compile_ptx(prepare(matmul(50, 40, 70)), "sm_80")
    assert module.kernels == (Kernel("matmul", (3, 4, 1), (16, 16, 1), 0),)
    text = module.ptx
    assert ".target sm_80" in text and ".maxntid 16, 16, 1" in text
    assert text.count("bar.sync") == 2 and "fma.rn.f32" in text
    assert "ld.shared" in text and "st.shared" in text and "ld.global" in text
    assert ".local" not in text  # the accumulator is a register


def test_kernels_of_several_nests_come_in_order(prepare):
    module = compile_ptx(
        prepare("""
function two(x: param f32[300], y: param f32[300]):
    alloc h: heap f32[300]:
        for i in 0 .. 300 block.x:
            h[i] = x[i]
        for jo in 0 .. 2 block.x:
            for ji in 0 .. min(256, 300 - jo*256) thread.x:
                y[jo*256 + ji] = h[299 - jo*256 - ji]
"""),
        "sm_80",
    )
    assert [(k.name, k.grid, k.block) for k in module.kernels] == [
        ("two_0", (300, 1, 1), (1, 1, 1)),
        ("two_1", (2, 1, 1), (256, 1, 1)),
    ]
    assert [b.name for b in module.between] == ["h"]
    if find_ptxas() is not None:
        assemble(module.ptx, "sm_80")


@needs_ptxas
def test_more_shared_memory_than_the_default_is_asked_for_at_the_launch(prepare):
    function = prepare("""
function big(x: param f32[16384], y: param f32[16384]):
    for b in 0 .. 1 block.x:
        alloc S: shared f32[16384]:
            for i in 0 .. 16384:
                S[i] = x[i]
            for t in 0 .. 256 thread.x:
                for r in 0 .. 64:
                    y[r*256 + t] = S[16383 - r*256 - t]
""")
    module = compile_ptx(function, "sm_80")
    assert module.kernels[0].dynamic == 65536
    assert ".extern .shared .align 16 .b8" in module.ptx
    assemble(module.ptx, "sm_80")


TYPES = {
    "f16": "f16(f32(x[t]) * f32(x[t]))",
    "bf16": "bf16(f32(x[t]) + f32(x[t]))",
    "f64": "exp(x[t]) / x[t] + sqrt(x[t])",
    "f32": "tanh(x[t]) + log(x[t]) * sigmoid(x[t]) + erf(x[t]) + sin(x[t])",
    "i32": "x[t] // 7:i32 % 5:i32 - x[t]",
    "i8": "max(x[t], -x[t])",
    "u64": "x[t] * x[t]",
    "bool": "x[t] & ~x[t]",
}


@needs_ptxas
@pytest.mark.parametrize("dtype", TYPES)
def test_types_and_functions(prepare, dtype):
    function = prepare(f"""
function f(x: param {dtype}[64], y: param {dtype}[64]):
    for t in 0 .. 64 thread.x:
        y[t] = {TYPES[dtype]}
""")
    for target in TARGETS:
        text = ptx(function, target)
        assert ".extern .func" not in text  # our own functions, no foreign ones
        assemble(text, target)


@needs_ptxas
def test_vectors_are_wide_accesses(prepare):
    function = prepare("""
function f(x: param f32[64, 4] align 16, y: param f32[64, 4] align 16):
    for t in 0 .. 64 thread.x:
        for v in 0 .. 4 vector(4):
            y[t, v] = x[t, v] * 2.0:f32
""")
    text = ptx(function, "sm_80")
    assert "ld.global.v4" in text and "st.global.v4" in text
    assemble(text, "sm_80")


@needs_ptxas
def test_what_cannot_be_in_registers_is_local(prepare):
    function = prepare("""
function f(x: param i64[64], y: param i64[64]):
    for t in 0 .. 64 thread.x:
        alloc r: local i64[64] align 64:
            for k in 0 .. 64:
                r[(k * 7) % 64] = x[k]
            y[t] = r[t]
""")
    text = ptx(function, "sm_80")
    assert ".local .align 64" in text
    assemble(text, "sm_80")


@needs_ptxas
def test_a_target_that_was_not_tried_is_emitted_by_a_child_process(prepare):
    function = prepare("""
function f(x: param f32[64]):
    for t in 0 .. 64 thread.x:
        x[t] = 1.0:f32
""")
    text = ptx(function, "sm_100")
    assert ".target sm_100" in text
    assemble(text, "sm_100")


def test_what_llvm_cannot_do_ends_the_child_alone():
    from diptych.codegen.gpu_limits import Limits
    from diptych.codegen.nvptx import _ptx

    text = """target triple = "nvptx64-nvidia-cuda"
declare void @llvm.nvvm.cp.async.commit.group()
define ptx_kernel void @k() {
  call void @llvm.nvvm.cp.async.commit.group()
  ret void
}
"""
    with pytest.raises(DeviceError, match="LLVM cannot make this kernel for sm_70: "):
        _ptx([text], Limits("sm_70", "ptx63", 0))


def test_an_unknown_target():
    with pytest.raises(DeviceError) as refused:
        ptx(None, "sm_61")  # type: ignore[arg-type]
    assert str(refused.value) == (
        "GPU target sm_61 is not known; expected one of sm_75, sm_80, sm_86, sm_89, sm_90, sm_90a, "
        "sm_100, sm_120"
    )


def test_importing_the_back_end_starts_nothing():
    code = (
        "import sys, diptych.codegen.nvptx, diptych.codegen.simt, diptych.codegen.cuda\n"
        "assert 'pycuda' not in sys.modules and 'pycuda.driver' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=120)


def test_floats_round_as_on_the_host(prepare):
    """Only a declared reduction is contracted; nothing is flushed to zero or approximate."""
    text = ptx(
        prepare("""
function f(x: param f32[64], y: param f32[64]):
    for t in 0 .. 64 thread.x:
        y[t] = sqrt(x[t] * x[t] + 1.0:f32) / x[t]
"""),
        "sm_80",
    )
    for instruction in ("mul.rn.f32", "add.rn.f32", "sqrt.rn.f32", "div.rn.f32"):
        assert instruction in text
    assert "fma" not in text and ".ftz" not in text and ".approx" not in text
