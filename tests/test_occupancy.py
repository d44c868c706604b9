"""Occupancy: known answers, limits at their edges, agreement with the toolkit's own header and with the driver."""

import ctypes
import glob
import os
import random
import shutil
import subprocess

import pytest

from dwlab.gpu.occupancy import LIMITS, limits, occupancy

# blocks per SM, worked by hand from the programming guide's table
KNOWN = [
    # threads, registers, shared, cc, blocks, limited by
    (256, 32, 0, (9, 0), 8, {"threads", "registers"}),
    (1024, 32, 0, (9, 0), 2, {"threads", "registers"}),
    (32, 32, 0, (9, 0), 32, {"block slots"}),
    (32, 32, 0, (8, 6), 16, {"block slots"}),
    (256, 64, 0, (9, 0), 4, {"registers"}),
    (96, 64, 0, (9, 0), 10, {"registers"}),
    (128, 32, 48 * 1024, (9, 0), 4, {"shared memory"}),  # 49 KiB with the driver's one: 228 // 49
    (128, 32, 48 * 1024, (8, 6), 2, {"shared memory"}),
    (128, 32, 48 * 1024, (7, 5), 1, {"shared memory"}),
    (128, 32, 48 * 1024, (6, 0), 1, {"shared memory"}),
    (1024, 16, 0, (8, 9), 1, {"threads"}),
    (33, 16, 0, (9, 0), 32, {"threads", "block slots"}),
]


@pytest.mark.parametrize("threads, registers, shared, cc, blocks, names", KNOWN)
def test_known_answers(threads, registers, shared, cc, blocks, names):
    answer = occupancy(threads, registers, shared, cc)
    assert answer.blocks_per_sm == blocks
    assert set(answer.limited_by) == names
    assert answer.exceeded == ()
    assert answer.warps_per_sm == blocks * -(-threads // 32)


@pytest.mark.parametrize("cc", sorted(LIMITS))
def test_edges_of_every_limit(cc):
    lim = limits(cc)
    assert occupancy(1024, 32, 0, cc).blocks_per_sm >= 1
    over = occupancy(1025, 32, 0, cc)
    assert over.blocks_per_sm == 0 and "1,025 threads" in over.exceeded[0] and "1,024" in over.exceeded[0]
    assert occupancy(32, 255, 0, cc).blocks_per_sm >= 1
    assert "256 registers a thread" in occupancy(32, 256, 0, cc).exceeded[0]
    fits = occupancy(32, 32, lim.shared_per_block_optin, cc)
    assert fits.blocks_per_sm == lim.shared_per_sm // lim.shared_per_block_optin and not fits.exceeded
    over = occupancy(32, 32, lim.shared_per_block_optin + 1, cc)
    assert over.blocks_per_sm == 0
    assert f"{lim.shared_per_block_optin + 1:,} bytes" in over.exceeded[0]
    assert f"{lim.shared_per_block_optin:,}" in over.exceeded[0]
    assert over.limited_by == ()


def test_registers_of_a_block():
    assert occupancy(1024, 64, 0, (9, 0)).blocks_per_sm == 1
    over = occupancy(1024, 65, 0, (9, 0))
    assert over.blocks_per_sm == 0 and "73,728 registers a block" in over.exceeded[0]


def test_above_48_kib_is_noted():
    assert occupancy(128, 32, 48 * 1024, (9, 0)).notes == ()
    (note,) = occupancy(128, 32, 48 * 1024 + 1, (9, 0)).notes
    assert "dynamic" in note and "49,153" in note


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((0,), "threads is 0"), ((32.0,), "threads is 32.0"), ((32, 0), "registers is 0"),
        ((32, 32, -1), "shared_bytes is -1"), ((32, 32, 0, (3, 5)), "known: 6.0"), ((32, 32, 0, 9), "known: 6.0"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_with_the_value(arguments, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        occupancy(*arguments)


HARNESS = r"""
#include <string.h>
#include <limits.h>
#include "cuda_occupancy.h"
int blocks(int major, int minor, int threads_sm, size_t shared_sm, size_t optin, size_t reserved,
           int threads, int registers, size_t shared) {
    cudaOccDeviceProp p; cudaOccFuncAttributes a; cudaOccDeviceState s; cudaOccResult r;
    memset(&p, 0, sizeof p); memset(&a, 0, sizeof a); memset(&s, 0, sizeof s);
    p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = threads_sm; p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536;
    p.warpSize = 32; p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = shared_sm; p.numSms = 1;
    p.sharedMemPerBlockOptin = optin; p.reservedSharedMemPerBlock = reserved;
    a.maxThreadsPerBlock = INT_MAX; a.numRegs = registers; a.partitionedGCConfig = PARTITIONED_GC_OFF;
    a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = shared; a.numBlockBarriers = 1;
    s.cacheConfig = CACHE_PREFER_NONE; s.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
    if (cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared) != CUDA_OCC_SUCCESS) return -1;
    return r.activeBlocksPerMultiprocessor;
}
"""


@pytest.fixture(scope="module")
def header_blocks(tmp_path_factory):
    places = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), *sorted(glob.glob("/usr/local/cuda*"))]
    includes = [os.path.join(place, "include") for place in places if place]
    include = next((one for one in includes if os.path.exists(os.path.join(one, "cuda_occupancy.h"))), None)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if include is None or compiler is None:
        pytest.skip("no CUDA toolkit with cuda_occupancy.h, or no C compiler: the table is not compared with it here")
    folder = tmp_path_factory.mktemp("occupancy")
    (folder / "harness.c").write_text(HARNESS)
    command = [compiler, "-shared", "-fPIC", "-O1", f"-I{include}", "-o", folder / "harness.so", folder / "harness.c"]
    subprocess.run(command, check=True, capture_output=True)
    call = ctypes.CDLL(str(folder / "harness.so")).blocks
    call.argtypes = [ctypes.c_int] * 3 + [ctypes.c_size_t] * 3 + [ctypes.c_int] * 2 + [ctypes.c_size_t]

    def blocks(cc, threads, registers, shared):
        lim = limits(cc)
        memory = (lim.shared_per_sm, lim.shared_per_block_optin, lim.shared_reserved)
        return call(*cc, lim.threads_per_sm, *memory, threads, registers, shared)

    return blocks


@pytest.mark.parametrize("cc", sorted(LIMITS))
def test_agrees_with_the_toolkit_header(header_blocks, cc):
    rng = random.Random(f"{cc}")
    optin = limits(cc).shared_per_block_optin
    cases = [(t, r, s) for t in (1, 32, 33, 1024, 1025) for r in (1, 32, 255) for s in (0, 1, 49152, optin, optin + 1)]
    cases += [(rng.randint(1, 1100), rng.randint(1, 255), rng.choice((0, rng.randint(0, optin)))) for _ in range(1500)]
    both = [(case, occupancy(*case, cc).blocks_per_sm, header_blocks(cc, *case)) for case in cases]
    wrong = [one for one in both if one[1] != one[2]]
    assert not wrong, f"(threads, registers, shared), ours, header: {wrong[:5]}"


def test_agrees_with_the_driver():
    """On a machine with a GPU: the driver's own answer for a compiled kernel, over block sizes and shared memory."""
    from dwlab.gpu import target

    if target.mode != "gpu":
        pytest.skip("no GPU here: the driver is not asked")
    from numba import cuda, float32

    @cuda.jit("void(float32[::1])")
    def kernel(out):
        scratch = cuda.shared.array(0, float32)
        i = cuda.grid(1)
        scratch[cuda.threadIdx.x] = i
        cuda.syncthreads()
        if i < out.size:
            out[i] = scratch[cuda.threadIdx.x] * 2

    device = cuda.get_current_device()
    (compiled,) = kernel.overloads.values()
    registers = compiled.regs_per_thread
    function = compiled._codelibrary.get_cufunc()
    context = cuda.current_context()
    for threads in (32, 33, 96, 128, 256, 512, 1024):
        for shared in (0, 1024, 5000, 16384, 48 * 1024):
            expected = context.get_active_blocks_per_multiprocessor(function, threads, shared)
            ours = occupancy(threads, registers, shared, tuple(device.compute_capability))
            assert ours.blocks_per_sm == expected, (threads, registers, shared)
