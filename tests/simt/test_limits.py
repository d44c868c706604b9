"""Launches that the hardware refuses: blocks, grids and shared memory, by compute capability."""

import numpy as np
import pytest
from numba import float32, float64, int8, int32

from dwlab import simt
from dwlab.gpu import occupancy
from dwlab.gpu.driver import allow_shared
from dwlab.simt import cuda
from tests.loaded import kernel_of, program

pytestmark = pytest.mark.quick


count = kernel_of("y", "cuda.atomic.add(y, 0, 1)")


def threads_run(grid, block):
    y = np.zeros(1, np.int64)
    count[grid, block](y)
    return int(y[0])


BLOCKS = [1, 32, 1024, (1024,), (1, 1024), (1, 1, 64), (32, 32), (16, 16, 4), (2, 8, 64), (31, 33), (1023, 1, 1)]
GRIDS = [1, 300, (1, 65535), (1, 1, 65535), (3, 5, 7), 65536]


@pytest.mark.parametrize("grid, block", [(2, block) for block in BLOCKS] + [(grid, 1) for grid in GRIDS])
def test_grids_and_blocks_up_to_the_limits(grid, block):
    assert threads_run(grid, block) == int(np.prod(grid) * np.prod(block))


@pytest.mark.parametrize("grid, block, words", [
    (1, 1025, "1025.*1024"), (1, (1024, 2), "2048.*1024"), (1, (32, 33), "1056.*1024"), (1, (1, 1, 65), "65.*64"),
    (1, (2, 2, 128), "128.*64"), (1, (8, 8, 32), "2048.*1024"), (1, 100000, "100000.*1024"),
    ((1, 65536), 1, "65536.*65535"), ((1, 1, 70000), 1, "70000.*65535"), (2**31, 1, "2147483648.*2147483647"),
])  # fmt: skip
def test_grids_and_blocks_over_the_limits(grid, block, words):
    y = np.zeros(1, np.int64)
    for launch in (lambda: count[grid, block](y), lambda: simt.xray(count, grid, block, y)):
        with pytest.raises(simt.LaunchError, match=words) as caught:
            launch()
        assert isinstance(caught.value, ValueError) and isinstance(caught.value, simt.SimtError) and y[0] == 0


EMPTY = (0, -1, (0, 4), (4, 0), (1, 1, 0))


@pytest.mark.parametrize("size", [*EMPTY, 1.5, 32.0, "32", None, (1,) * 4, (), (2, 2.5), [1, None], np.float32(3)])
def test_sizes_that_are_empty_or_no_integers(size):
    why = "at least 1" if any(size is one for one in EMPTY) else "integers, got"
    for grid, block in ((size, 32), (1, size)):
        with pytest.raises(simt.LaunchError, match=why):
            threads_run(grid, block)


# --- shared memory --------------------------------------------------------------------------------


def static(elements, dtype):
    lines = [f"tile = cuda.shared.array({elements}, dtype)", "tile[0] = 1", "y[0] = tile[0]"]
    return program(lines, "y", dtype=dtype)[0]


@pytest.mark.parametrize("dtype, size", [(float32, 4), (float64, 8), (int8, 1), (int32, 4)])
def test_static_shared_memory_up_to_48_kib(dtype, size):
    static(48 * 1024 // size, dtype)[1, 1](np.zeros(1))
    with pytest.raises(simt.LaunchError, match=f"{48 * 1024 + size}.*49152"):
        static(48 * 1024 // size + 1, dtype)[1, 1](np.zeros(1))


def test_static_shared_memory_is_added_up_and_an_array_in_a_loop_is_one():
    @cuda.jit(device=True)
    def held(size):
        tile = cuda.shared.array(size, float32)
        tile[0] = float32(1.0)
        return tile[0]

    fits, _ = program(["y[0] = held(4096) + held(7168)"], "y", held=held)
    over, _ = program(["y[0] = held(4096) + held(7168) + held(1025)"], "y", held=held)
    y = np.zeros(1)
    fits[1, 1](y)
    assert simt.xray(fits, 1, 1, y).shared_bytes == 4 * (4096 + 7168) and y[0] == 2
    with pytest.raises(simt.LaunchError, match="49152"):
        over[1, 1](y)
    array = "tile = cuda.shared.array(1024, float64)"
    kernel_of("y", "for k in range(20):", f"    {array}", "    tile[0] = k", "    y[0] = tile[0]")[1, 1](y)
    assert y[0] == 19


dynamic = kernel_of("y", "tile = cuda.shared.array(0, float32)", "tile[tile.size - 1] = 1.0", "y[0] = tile.size")


@pytest.mark.parametrize("capability", sorted(occupancy.LIMITS))
def test_dynamic_shared_memory_up_to_the_compute_capabilitys_limit(capability):
    most = occupancy.limits(capability).shared_per_block_optin
    y = np.zeros(1)
    with simt.using(simt.Options(compute_capability=capability)):
        dynamic.allowed.clear()
        if most > 48 * 1024:  # Numba-CUDA does not ask for it by itself
            allow_shared(dynamic, (y,), most - 4)
            for given in (y, y.astype(np.float32)):  # of the other compiled form nothing was asked
                with pytest.raises(simt.LaunchError, match=f"{most} bytes of dynamic.*allow_shared"):
                    dynamic[1, 1, 0, most](given)
            assert simt.xray(dynamic, 1, 1, y, shared_bytes=most).hazards == ()
            dynamic[1, 1, 0, 48 * 1024](y)
        allow_shared(dynamic, (y,), most)
        dynamic[1, 1, 0, most](y)
        assert y[0] == most // 4
        allow_shared(dynamic, (y,), most + 4)
        with pytest.raises(simt.LaunchError, match=f"{most + 4}.*{capability[0]}.{capability[1]}.*{most}"):
            dynamic[1, 1, 0, most + 4](y)


def test_static_and_dynamic_shared_memory_share_the_limit():
    arrays = [f"{name} = cuda.shared.array({size}, float32)" for name, size in (("fixed", 1024), ("buffer", 0))]
    both = kernel_of("y", *arrays, "fixed[0] = 1.0", "buffer[0] = 2.0", "y[0] = fixed[0] + buffer[0]")
    y = np.zeros(1)
    with simt.using(simt.Options(compute_capability=(8, 6))):
        allow_shared(both, (y,), 96 * 1024)
        both[1, 1, 0, 95 * 1024](y)
        assert y[0] == 3
        with pytest.raises(simt.LaunchError, match="8.6"):
            both[1, 1, 0, 95 * 1024 + 4](y)


def test_bad_amounts_of_dynamic_shared_memory():
    with pytest.raises((simt.LaunchError, ValueError), match="-4"):
        dynamic[1, 1, 0, -4](np.zeros(1))
    with pytest.raises(simt.HazardError, match="out of bounds|negative"):
        dynamic[1, 1](np.zeros(1))
    with pytest.raises((simt.LaunchError, ValueError), match="-4"):
        simt.xray(dynamic, 1, 1, np.zeros(1), shared_bytes=-4)


def test_a_compute_capability_that_nobody_knows():
    with pytest.raises((simt.LaunchError, ValueError), match="1, 3.*9.0"):
        with simt.using(simt.Options(compute_capability=(1, 3))):
            threads_run(1, 1)


def test_the_limit_that_a_kernel_was_compiled_for():
    @cuda.jit(launch_bounds=128)
    def bounded(y):
        y[cuda.threadIdx.x] = 1.0

    bounded[1, 128](np.zeros(128))
    with pytest.raises(simt.LaunchError, match="256.*launch_bounds.*128|launch_bounds.*128.*256"):
        bounded[1, 256](np.zeros(256))


@pytest.mark.parametrize("array, words", [
    ("cuda.local.array(70_000, float64)", "560,?000.*524,?288"), ("cuda.const.array_like(table)", "80,?000.*65,?536")
])  # fmt: skip
def test_local_memory_of_a_thread_is_limited_to_512_kib_and_constant_memory_to_64(array, words):
    lines = f"own = {array}", "y[0] = own[0]"
    kernel, _ = program(lines, "y", float64=float64, table=np.zeros(20_000, np.float32))
    with pytest.raises(simt.LaunchError, match=words):
        kernel[1, 1](np.zeros(1))


# --- batches --------------------------------------------------------------------------------------


def test_a_large_launch_stays_within_its_budget():
    import tracemalloc

    scale = kernel_of("x, y", "i = cuda.grid(1)", "if i < x.size:", "    y[i] = x[i] * float32(2.0)")
    x = cuda.to_device(np.ones(1 << 20, np.float32))
    y = cuda.device_array_like(x)
    scale[1, 32](x, y)
    tracemalloc.start()
    scale[4096, 256](x, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (y.copy_to_host() == 2).all()
    assert peak < 400 << 20


def test_arrays_too_large_to_be_watched_are_refused_with_a_way_round():
    fill = kernel_of("y", "i = cuda.grid(1)", "if i < y.size:", "    y[i] = 1.0")
    y = np.zeros(1 << 16, np.float32)
    small = simt.Options(watch_budget=1 << 20)
    with pytest.raises(simt.LaunchError, match=r"5 MiB.*1 MiB.*watch_budget.*hazards='off'"):
        simt.xray(fill, 1 << 9, 128, y, options=small)
    simt.xray(fill, 1 << 9, 128, y, options=simt.Options(watch_budget=1 << 20, hazards="off"))
