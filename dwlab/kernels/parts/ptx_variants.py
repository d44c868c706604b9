"""Instructions that do what another one does by another text: smaller products, hints to caches (parts/ptx.py).

No stage calls them: a search puts them in the place of those that a stage calls (dwlab.tuning.levels). mma_f16_k8 is
two products of half the k, one after the other, and so are the other three. Loads: "nc" by the way of what no thread
writes meanwhile; "no_allocate" leaves no line in L1, "evict_first" one that goes first. Stores, "cs": what is written
once goes first from the L2. Source: PTX ISA 8.7, "ld", "ld.global.nc", "st", "Cache Eviction Priority Hints".
"""

from typing import Any

from dwlab.gpu.inline_ptx import VARIANTS, outside
from dwlab.simt.instructions import publish


def _variant(name: str) -> Any:
    def instruction(*given: Any) -> None:
        outside(name)

    instruction.__name__ = instruction.__qualname__ = name
    return instruction


load2_nc, load4_nc = _variant("load2_nc"), _variant("load4_nc")
load2_no_allocate, load4_no_allocate = _variant("load2_no_allocate"), _variant("load4_no_allocate")
load2_evict_first, load4_evict_first = _variant("load2_evict_first"), _variant("load4_evict_first")
store2_cs, store4_cs = _variant("store2_cs"), _variant("store4_cs")
mma_tf32_k4, mma_s8_k16 = _variant("mma_tf32_k4"), _variant("mma_s8_k16")
mma_f16_k8, mma_bf16_k8 = _variant("mma_f16_k8"), _variant("mma_bf16_k8")
publish(globals(), VARIANTS)
