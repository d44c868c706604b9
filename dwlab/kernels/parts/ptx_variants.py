"""Instructions that do what another one does by another text: smaller products, hints to caches (parts/ptx.py).

No stage calls them: a search puts them in the place of those that a stage calls (dwlab.kernels.levels). Loads: "nc" by
the way of what no thread writes meanwhile; "no_allocate" leaves no line in L1, "evict_first" one that goes first; "l2"
caches in the L2 only, as dwlab.measure.device reads. Stores, "cs": what is written once goes first from the L2.
Source: PTX ISA 8.7, "ld", "ld.global.nc", "st", "Cache Eviction Priority Hints".
"""

from typing import Any

from dwlab.instructions import meanings
from dwlab.kernels.parts.instruction import instruction

HALVES = ("mma_tf32_k4", "mma_f16_k8", "mma_bf16_k8", "mma_s8_k16")


def _named(name: str, function: Any) -> Any:
    function.__name__ = function.__qualname__ = name
    return function


def _load(name: str, how: str, since: tuple[int, int] = (5, 0)) -> Any:
    def load(array, index):
        """A load with a hint."""

    width = int(name[4])
    text = f"ld.global.{how}.v{width}.f32 {{{', '.join(f'${k}' for k in range(width))}}}, [${width}];"
    return instruction(text, "gx -> " + "f" * width, meanings.load("global", width), since=since)(_named(name, load))


def _halves(name: str, shape: str, kind: str) -> Any:
    def mma(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
        """Two products of half the k, one after the other: words lie in lanes as one of all of it has them."""

    text = f"mma.sync.aligned.{shape} {{$0, $1, $2, $3}}, {{$8, $9}}, {{$12}}, {{$4, $5, $6, $7}}; "
    text += f"mma.sync.aligned.{shape} {{$0, $1, $2, $3}}, {{$10, $11}}, {{$13}}, {{$0, $1, $2, $3}};"
    letters = "iiii iiii ii -> &iiii" if kind == "int8" else "ffff wwww ww -> &ffff"
    return instruction(text, letters, meanings.mma(kind), since=(8, 0))(_named(name, mma))


load2_nc = _load("load2_nc", "nc")
load4_nc = _load("load4_nc", "nc")
load2_no_allocate = _load("load2_no_allocate", "L1::no_allocate", (7, 0))
load4_no_allocate = _load("load4_no_allocate", "L1::no_allocate", (7, 0))
load2_evict_first = _load("load2_evict_first", "L1::evict_first", (7, 0))
load4_evict_first = _load("load4_evict_first", "L1::evict_first", (7, 0))
load4_l2 = _load("load4_l2", "cg")
mma_tf32_k4 = _halves("mma_tf32_k4", "m16n8k4.row.col.f32.tf32.tf32.f32", "tf32")
mma_f16_k8 = _halves("mma_f16_k8", "m16n8k8.row.col.f32.f16.f16.f32", "float16")
mma_bf16_k8 = _halves("mma_bf16_k8", "m16n8k8.row.col.f32.bf16.bf16.f32", "bfloat16")
mma_s8_k16 = _halves("mma_s8_k16", "m16n8k16.row.col.s32.s8.s8.s32", "int8")


@instruction("st.global.cs.v2.f32 [$0], {$1, $2};", "gx FF", meanings.store("global", 2))
def store2_cs(array, index, a, b):
    """store2 of what is written once."""


@instruction("st.global.cs.v4.f32 [$0], {$1, $2, $3, $4};", "gx FFFF", meanings.store("global"))
def store4_cs(array, index, a, b, c, d):
    """store4 of what is written once."""
