"""Instructions that move words: 16 or 8 bytes at a time, and asynchronous copies to shared memory (parts/ptx.py)."""

from dwlab.instructions import meanings
from dwlab.kernels.parts.instruction import instruction

WAITS_FROM = (9, 0)
"""The least compute capability that has griddepcontrol: below it grid_dependency_wait() is no instruction."""


@instruction("ld.global.v4.f32 {$0, $1, $2, $3}, [$4];", "gx -> ffff", meanings.load("global"))
def load4(array, index):
    """array[index : index + 4] of a global array."""


@instruction("st.global.v4.f32 [$0], {$1, $2, $3, $4};", "gx FFFF", meanings.store("global"))
def store4(array, index, a, b, c, d):
    """array[index : index + 4] = a, b, c, d in a global array."""


@instruction("ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "sx -> ffff", meanings.load("shared"))
def load4_shared(array, index):
    """array[index : index + 4] of a shared array."""


@instruction("st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "sx FFFF", meanings.store("shared"))
def store4_shared(array, index, a, b, c, d):
    """array[index : index + 4] = a, b, c, d in a shared array."""


@instruction("ld.global.v2.f32 {$0, $1}, [$2];", "gx -> ff", meanings.load("global", 2))
def load2(array, index):
    """array[index : index + 2] of a global array."""


@instruction("st.global.v2.f32 [$0], {$1, $2};", "gx FF", meanings.store("global", 2))
def store2(array, index, a, b):
    """array[index : index + 2] = a, b in a global array."""


@instruction("st.shared.v2.f32 [$0], {$1, $2};", "sx FF", meanings.store("shared", 2))
def store2_shared(array, index, a, b):
    """array[index : index + 2] = a, b in a shared array."""


@instruction("cp.async.cg.shared.global [$0], [$1], 16;", "sx gx", meanings.copy(4), since=(8, 0))
def copy4_async(shared, i, source, j):
    """Starts shared[i : i + 4] = source[j : j + 4], source a global array, past the registers and without waiting."""


@instruction("cp.async.cg.shared.global [$0], [$1], 16, $2;", "sx gx z", meanings.copy_or_zeros, since=(8, 0))
def copy4_async_zfill(shared, i, source, j, inside):
    """copy4_async where inside, else shared[i : i + 4] = 0, in flight as a copy is; j may then be any number."""


@instruction("cp.async.ca.shared.global [$0], [$1], 8;", "sx gx", meanings.copy(2), since=(8, 0))
def copy2_async(shared, i, source, j):
    """Starts shared[i : i + 2] = source[j : j + 2], source a global array; through the L1, as no wider one."""


@instruction("cp.async.ca.shared.global [$0], [$1], 4;", "sx gx", meanings.copy(1), since=(8, 0))
def copy1_async(shared, i, source, j):
    """Starts shared[i] = source[j], source a global array."""


@instruction("cp.async.commit_group;", "", meanings.commit, since=(8, 0))
def commit():
    """Makes a group of the copies that this thread has started since its last commit."""


@instruction("cp.async.wait_group <groups>;", "l", meanings.wait, since=(8, 0), literals={"groups": range(2**31)})
def wait(groups):
    """Waits until at most this many of the thread's groups, its youngest, are still in flight."""


@instruction({(5, 0): "", WAITS_FROM: "griddepcontrol.wait;"}, "", meanings.nothing)
def grid_dependency_wait():
    """Waits until all kernels that this one depends on are done, and what they wrote is there; else it does nothing."""
