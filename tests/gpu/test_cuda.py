"""The launch path, on a machine without a GPU: what is missing, and what a driver would be asked.

The stand-in driver keeps memory in NumPy arrays and launches nothing; its kernel is a function
of the test.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import subprocess
import sys
import types

import numpy as np
import pytest
from diptych.algo.errors import DeviceError, ShapeError
from diptych.codegen import cuda


def has_driver() -> bool:
    try:
        ctypes.CDLL(cuda.DRIVER)
    except OSError:
        return False
    return True


needs_none = pytest.mark.skipif(has_driver(), reason="this machine has NVIDIA's driver")


@needs_none
def test_what_is_missing_is_named():
    with pytest.raises(DeviceError) as refused:
        cuda.device(0)
    pycuda = importlib.util.find_spec("pycuda") is not None
    assert str(refused.value) == (
        "cuda:0 cannot be used: NVIDIA's driver (libcuda.so.1) was not found"
        + ("" if pycuda else " and pycuda is not installed (the extra diptych[cuda])")
    )


class DriverError(Exception):
    """What pycuda raises for a status that is not success."""


class Driver(types.ModuleType):
    """pycuda.driver as far as it is used, for one device of compute capability 9.0."""

    Error = DriverError
    device_attribute = types.SimpleNamespace(
        MAX_SHARED_MEMORY_PER_BLOCK="shared",
        MAX_SHARED_MEMORY_PER_BLOCK_OPTIN="opt_in",
        MAX_THREADS_PER_BLOCK="threads",
    )
    function_attribute = types.SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic")
    attributes = {"shared": 49152, "opt_in": 232448, "threads": 1024}  # noqa: RUF012

    def __init__(self, kernel=None, devices: int = 1, fail: str = "") -> None:
        super().__init__("pycuda.driver")
        self.calls: list[tuple] = []
        self.kernel, self.devices, self.fail = kernel, devices, fail
        driver = self

        class Device:
            def __init__(self, index: int) -> None: ...

            @staticmethod
            def count() -> int:
                return driver.devices

            def retain_primary_context(self):
                return types.SimpleNamespace(
                    push=lambda: driver.calls.append(("push",)),
                    pop=lambda: driver.calls.append(("pop",)),
                    synchronize=lambda: driver.check("synchronize"),
                )

            def compute_capability(self) -> tuple[int, int]:
                return 9, 0

            def get_attribute(self, name: str) -> int:
                return driver.attributes[name]

        self.Device = Device

    def check(self, what: str) -> None:
        if self.fail == what:
            raise DriverError(f"{what} failed: an illegal memory access was encountered")

    def init(self) -> None:
        self.check("init")

    def mem_alloc(self, size: int) -> np.ndarray:
        self.check("mem_alloc")
        return np.zeros(size, np.uint8)

    def memcpy_htod(self, there: np.ndarray, here: np.ndarray) -> None:
        there[: here.nbytes] = here.reshape(-1).view(np.uint8)

    def memcpy_dtoh(self, here: np.ndarray, there: np.ndarray) -> None:
        here.reshape(-1).view(np.uint8)[:] = there[: here.nbytes]

    def module_from_buffer(self, text: bytes):
        assert text.endswith(b"\0") and b".target sm_90" in text
        return types.SimpleNamespace(get_function=self.function)

    def function(self, name: str):
        def launch(*pointers, grid, block, shared):
            self.calls.append((name, grid, block, shared))
            if self.kernel is not None:
                self.kernel(*pointers)

        launch.set_attribute = lambda which, value: self.calls.append((which, value))
        return launch


@pytest.fixture
def install(monkeypatch):
    """Puts a stand-in driver in place of pycuda's; returns its device 0."""

    def run(driver: Driver, index: int = 0) -> cuda.Cuda:
        package = types.ModuleType("pycuda")
        package.driver = driver
        monkeypatch.setitem(sys.modules, "pycuda", package)
        monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
        monkeypatch.setattr(cuda, "missing", list)
        monkeypatch.setattr(cuda, "_devices", {})
        return cuda.device(index)

    return run


DOUBLE = """
function double(x: param f32[300], y: param f32[300]):
    for b in 0 .. 2 block.x:
        for t in 0 .. min(256, 300 - b*256) thread.x:
            y[b*256 + t] = x[b*256 + t] * 2.0:f32
"""


def double(x, y, status):
    y.view(np.float32)[:] = 2 * x.view(np.float32)


def test_arrays_go_there_and_results_come_back(install, prepare):
    driver = Driver(double)
    gpu = install(driver)
    x, y = np.arange(300, dtype=np.float32), np.full(300, np.nan, np.float32)
    function = prepare(DOUBLE)
    gpu.run(function, [x, y])
    np.testing.assert_array_equal(y, 2 * x)
    assert driver.calls == [("push",), ("double", (2, 1, 1), (256, 1, 1), 0), ("pop",)]
    gpu.run(function, [x, y])
    assert len(gpu._modules) == 1  # compiled once


def test_shared_memory_beyond_the_default_is_asked_for(install, prepare):
    driver = Driver()
    gpu = install(driver)
    function = prepare("""
function big(x: param f32[16384], y: param f32[16384]):
    for b in 0 .. 1 block.x:
        alloc S: shared f32[16384]:
            for i in 0 .. 16384:
                S[i] = x[i]
            for t in 0 .. 256 thread.x:
                y[t] = S[16383 - t]
""")
    x = np.zeros(16384, np.float32)
    gpu.run(function, [x, x.copy()])
    assert ("dynamic", 65536) in driver.calls
    assert ("big", (1, 1, 1), (256, 1, 1), 65536) in driver.calls


def test_nothing_is_launched_for_no_elements(install, prepare):
    driver = Driver()
    gpu = install(driver)
    function = prepare("""
function none(y: param f32[0]):
    for b in 0 .. 0 block.x:
        y[b] = 1.0:f32
""")
    gpu.run(function, [np.zeros(0, np.float32)])
    assert driver.calls == [("push",), ("pop",)]


@pytest.mark.parametrize("step", ["mem_alloc", "synchronize"])
def test_a_status_that_is_not_success_is_an_error(install, prepare, step):
    gpu = install(Driver(fail=step))
    x, y = np.zeros(300, np.float32), np.full(300, 7, np.float32)
    with pytest.raises(DeviceError) as failed:
        gpu.run(prepare(DOUBLE), [x, y])
    assert str(failed.value) == (
        f"cuda:0: double failed: {step} failed: an illegal memory access was encountered"
    )
    assert (y == 7).all()


def test_a_driver_that_does_not_start(install):
    with pytest.raises(DeviceError) as failed:
        install(Driver(fail="init"))
    assert str(failed.value) == (
        "cuda:0: cannot be initialised: init failed: an illegal memory access was encountered"
    )


def test_a_device_that_is_not_there(install):
    with pytest.raises(DeviceError) as failed:
        install(Driver(devices=1), 3)
    assert str(failed.value) == "cuda:3 does not exist: the driver finds 1 GPUs"


def test_an_index_out_of_range_is_reported(install, prepare):
    def kernel(t, w, y, status):
        status.view(np.int64)[0] = 1

    gpu = install(Driver(kernel))
    function = prepare("""
function gather(t: param i64[4], w: param f32[7], y: param f32[4]):
    for b in 0 .. 4 block.x:
        y[b] = w[t[b]]
""")
    y = np.full(4, 7, np.float32)
    with pytest.raises(ShapeError) as failed:
        gpu.run(function, [np.zeros(4, np.int64), np.zeros(7, np.float32), y])
    assert str(failed.value) == (
        "gather: an index read from an array is out of range for w axis 0 of size 7"
    )
    assert (y == 7).all()


def test_strided_arrays_are_refused(install, prepare):
    gpu = install(Driver())
    x = np.zeros((300, 2), np.float32)
    with pytest.raises(DeviceError) as failed:
        gpu.run(prepare(DOUBLE), [x[:, 0], np.zeros(300, np.float32)])
    assert str(failed.value) == (
        "double: x has strides (8,), and only dense arrays are copied to a GPU; pass "
        "np.ascontiguousarray(x)"
    )


def test_limits_come_from_the_device(install, monkeypatch):
    monkeypatch.setitem(Driver.attributes, "opt_in", 101376)
    assert install(Driver()).limits.opt_in == 101376


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told(install):
    install(Driver())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            cuda.device(0)
            words = "no error"
        except DeviceError as error:
            words = str(error)
        os.write(write, words.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).decode() == (
        "cuda:0: CUDA was used before this process was forked, and cannot be used after fork; "
        "start processes with multiprocessing's spawn or forkserver"
    )


def test_targets_of_devices():
    from diptych.codegen.gpu_limits import target_for

    assert [target_for(c) for c in ((7, 5), (8, 0), (8, 7), (9, 0), (10, 3), (12, 1))] == [
        "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120",
    ]  # fmt: skip
    with pytest.raises(DeviceError) as refused:
        target_for((6, 1))
    assert str(refused.value) == (
        "GPUs of compute capability 6.1 are not supported; expected 7.5 or later"
    )


def test_importing_initialises_nothing():
    code = (
        "import sys, diptych.codegen.gpu\n"
        "assert not any(name.startswith('pycuda') for name in sys.modules)\n"
        "assert not diptych.codegen.cuda._devices"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=120)
