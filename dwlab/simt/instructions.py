"""What the instructions of dwlab.kernels.parts.ptx mean to the interpreter; in gpu mode they become intrinsics."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from dwlab.gpu import inline_ptx, target
from dwlab.simt import bulk, groups, narrow, sparse, tensor, wide
from dwlab.simt.intrinsics import register_instruction

_MEANINGS = SimpleNamespace(
    load4=wide.load("ptx.load4", "global"),
    store4=wide.store("ptx.store4", "global"),
    load4_shared=wide.load("ptx.load4_shared", "shared"),
    store4_shared=wide.store("ptx.store4_shared", "shared"),
    load2=wide.load("ptx.load2", "global", 2),
    store2=wide.store("ptx.store2", "global", 2),
    store2_shared=wide.store("ptx.store2_shared", "shared", 2),
    copy4_async=wide.copy_async("ptx.copy4_async", 4),
    copy4_async_zfill=wide.copy_zfill,
    copy2_async=wide.copy_async("ptx.copy2_async", 2),
    copy1_async=wide.copy_async("ptx.copy1_async", 1),
    commit=wide.commit,
    wait=wide.wait,
    halves=narrow.halves,
    join_halves=narrow.join_halves,
    bfloats=narrow.bfloats,
    join_bfloats=narrow.join_bfloats,
    tf32=narrow.tf32,
    mma_tf32=tensor.product("ptx.mma_tf32", "tf32"),
    mma_f16=tensor.product("ptx.mma_f16", "float16"),
    mma_bf16=tensor.product("ptx.mma_bf16", "bfloat16"),
    mma_s8=tensor.product("ptx.mma_s8", "int8"),
    mma_sp_f16=sparse.product("ptx.mma_sp_f16", "float16"),
    mma_sp_s8=sparse.product("ptx.mma_sp_s8", "int8"),
    ldmatrix_x4=tensor.matrices("ptx.ldmatrix_x4", transposed=False),
    ldmatrix_x4_trans=tensor.matrices("ptx.ldmatrix_x4_trans", transposed=True),
    dp4a=narrow.dp4a,
    rint=narrow.rint,
    add_rn=narrow.add_rn,
    pack_s8=narrow.pack_s8,
    prmt=narrow.prmt,
    word_of_float=narrow.word_of_float,
    float_of_word=narrow.float_of_word,
    grid_dependency_wait=wide.grid_dependency_wait,
    wgmma_f16=groups.product("ptx.wgmma_f16", "float16"),
    wgmma_bf16=groups.product("ptx.wgmma_bf16", "bfloat16"),
    wgmma_sp_f16=groups.sparse_product("ptx.wgmma_sp_f16"),
    wgmma_sp_f16_trans=groups.sparse_product("ptx.wgmma_sp_f16_trans", rows=True),
    wgmma_fence=groups.fence,
    wgmma_commit=groups.commit,
    wgmma_wait=groups.wait("ptx.wgmma_wait"),
    wgmma_sp_wait=groups.wait("ptx.wgmma_sp_wait", keeps=True),
    fence_async=groups.fence_async,
    mbarrier_init=bulk.mbarrier_init,
    mbarrier_expect=bulk.mbarrier_expect,
    mbarrier_arrive=bulk.mbarrier_arrive,
    mbarrier_wait=bulk.mbarrier_wait,
    copy_box_async=bulk.copy_box_async,
)

_KINDS = ("tf32", "float16", "bfloat16", "int8")
vars(_MEANINGS).update(
    {name: tensor.product(f"ptx.{name}", kind) for name, kind in zip(inline_ptx.HALVES, _KINDS, strict=True)}
    | {name: wide.load(f"ptx.{name}", "global", int(name[4])) for name in inline_ptx.HINTED_LOADS}
    | {name: wide.store(f"ptx.{name}", "global", int(name[5])) for name in inline_ptx.HINTED_STORES}
)


def publish(namespace: dict[str, Any], names: tuple[str, ...]) -> None:
    """Makes the functions `names` of a module, its globals(), instructions."""
    if target.mode == "gpu":
        namespace.update({name: getattr(inline_ptx.intrinsics(), name) for name in names})
    for name in names:
        refusal = functools.partial(inline_ptx.lacks, name) if inline_ptx.needs(name) > (5, 0) else None
        register_instruction(namespace[name], getattr(_MEANINGS, name), refusal)
