"""Libraries on a pointwise layer with sparse filters: cuBLAS on the filters with their zeros, and sparse ones.

    cuBLAS                  torch.mm on the dense filters, pixels or filters first
    PyTorch                 F.linear with to_sparse_semi_structured filters, as its documentation has it
    cuSPARSELt heuristic    torch._cslt_sparse_mm with the algorithm that the library would take
    cuSPARSELt search       the same with what torch._C._cusparselt.mm_search found, before anything is timed, and the
                            tensor subclass SparseSemiStructuredTensorCUSPARSELT with that algorithm
    cuSPARSE                torch.mm of CSR filters

Filters of V:2:M have at most two of every four neighbours, too, so 2:4 libraries take them all. Each gets pixels first
(as NHWC has them) and, where it can, filters first (as NCHW has them in one image), laid out before; the output comes
in either order. cuSPARSE gets filters first alone: the other way took eight times as long on an H200. cuSPARSELt is not
asked to transpose its result: on an H200 (PyTorch 2.11) a call took 0.2 s then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tables.networks import LIBRARIES

from dwlab.measure import baselines, layer_baselines
from dwlab.measure.baselines import Baseline, Prepare, TorchClock
from dwlab.problems.layers import SparsePointwise

# Of these a call makes a plan, 0.5 ms and more of the host's time: they are timed in graphs, or not at all.
HOST_BOUND = ("PyTorch", "cuSPARSELt heuristic", "cuSPARSELt search")
Product = Callable[[Any], Any]
Make = Callable[[Any], Product]


def library(way: str) -> str:
    """Whose way it is: one of LIBRARIES, with which its text begins, and a colon."""
    return way.split(":")[0]


def fastest_of_each(tried: Iterable[Baseline]) -> dict[str, Baseline]:
    """Library -> its fastest way that ran; in the order of LIBRARIES, without those of which none ran."""
    found: dict[str, Baseline] = {}
    for one in tried:
        best = found.get(library(one.way))
        if one.time is not None and (best is None or one.time.median_us < best.time.median_us):
            found[library(one.way)] = one
    return {name: found[name] for name in LIBRARIES if name in found}


def ways(layer: SparsePointwise) -> dict[str, Prepare]:
    """How libraries can compute a layer: text -> prepare(x=…, w=…), tensors x in its layout and w (F, C), zeros too.

    Raises ValueError for a layer with bias, activation or residual, which not every library does in the same call.
    """
    if layer.bias or layer.residual or layer.activation != "none":
        raise ValueError(f"libraries are compared on the product alone: {layer} has more")
    pixels_first = {
        "cuBLAS": _dense, "PyTorch": _linear, "cuSPARSELt heuristic": _of_pixels(_cslt(False)),
        "cuSPARSELt search": _of_pixels(_cslt(True)),
    }  # fmt: skip
    filters_first = {
        "cuBLAS": lambda w: lambda xt: w @ xt, "cuSPARSELt heuristic": _cslt(False), "cuSPARSELt search": _cslt(True),
        "cuSPARSE": _csr,
    }  # fmt: skip
    found = {f"{name}: pixels first": _prepare(layer, make, True) for name, make in pixels_first.items()}
    subclass = _of_pixels(_subclass())
    found["cuSPARSELt search: tensor subclass, pixels first"] = _prepare(layer, subclass, True)
    found |= {f"{name}: filters first": _prepare(layer, make, False) for name, make in filters_first.items()}
    return dict(sorted(found.items(), key=lambda one: LIBRARIES.index(library(one[0]))))


def measure(
    layer: SparsePointwise, sets: Sequence[Mapping[str, Any]], verify: Callable[[dict[str, Any]], str], *, cold: str,
    **how: Any,
) -> list[Baseline]:  # fmt: skip
    """Every way, timed, as dwlab.measure.layer_baselines.measure has it; sets: of tensors x and w, as `ways` has them.
    An empty list without a GPU.
    """
    if not baselines.available():
        return []
    import torch

    clock, found = TorchClock(), []
    with baselines.full_precision(), torch.no_grad():
        for way, prepare in ways(layer).items():
            always = {"graph_below_us": math.inf} if library(way) in HOST_BOUND else {}
            one = baselines.timed(way, way.replace(":", ",", 1), prepare, sets, verify, clock, cold, how | always)
            if always and one.time is not None and one.time.method != "graph":
                one = replace(one, time=None, failure=f"it would be the host's time: {one.time.note}")
            found.append(one)
    return found


def relative_error() -> float:
    """Allowed ‖y - reference‖ / ‖reference‖."""
    return layer_baselines.relative_error("float16")


def _prepare(layer: SparsePointwise, make: Make, pixels_first: bool) -> Prepare:
    """make(w) -> product(x), x (pixels, C) and y (pixels, F), or both transposed; searched in the first call."""
    N, H, W, C, F, nchw = layer.N, layer.H, layer.W, layer.C, layer.F, layer.layout == "NCHW"

    def output(y: Any) -> dict[str, Any]:
        y = (y if pixels_first else y.t()).reshape(N, H, W, F)
        return {"y": y.movedim(3, 1) if nchw else y}

    def prepare(x: Any, w: Any) -> tuple[baselines.Call, baselines.Outputs]:
        try:
            product = make(w)
            x2 = x.movedim(1, 3).reshape(N * H * W, C) if nchw else x.reshape(N * H * W, C)
            given = x2 if pixels_first else x2.t().contiguous()
            product(given)
        except (AttributeError, ValueError, TypeError) as error:  # what this PyTorch, or this build, does not have
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        return lambda: product(given), output

    return prepare


def _of_pixels(make: Make) -> Make:
    """The product of x (pixels, C), taken as its transposed, and so is y."""

    def made(w: Any) -> Product:
        product = make(w)
        return lambda x: product(x.t()).t()

    return made


def _dense(w: Any) -> Product:
    transposed = w.t()
    return lambda x: x @ transposed


def _csr(w: Any) -> Product:
    sparse = w.to_sparse_csr()
    return lambda xt: sparse @ xt


def _linear(w: Any) -> Product:
    import torch

    # cuSPARSELt, whatever this process set before: PyTorch's CUTLASS kernels are for compute capability 8.x alone.
    torch.sparse.SparseSemiStructuredTensor._FORCE_CUTLASS = False
    sparse = torch.sparse.to_sparse_semi_structured(w)
    return lambda x: torch.nn.functional.linear(x, sparse)


def _cslt(search: bool) -> Make:
    known: dict[str, int] = {}  # found once for all sets of tensors

    def make(w: Any) -> Product:
        import torch

        packed = torch._cslt_compress(w)

        def product(xt: Any) -> Any:
            if search and not known:
                known.update(_searched(packed, xt))
            return torch._cslt_sparse_mm(packed, xt, **known)

        return product

    return make


def _searched(packed: Any, xt: Any) -> dict[str, int]:
    """The algorithm that the library measures to be the fastest, and the split of the sum that it is good for."""
    import torch

    mm_search = getattr(getattr(torch._C, "_cusparselt", None), "mm_search", None)
    if mm_search is None:  # a PyTorch that finds no split
        return {"alg_id": int(torch._cslt_sparse_mm_search(packed, xt))}
    found = mm_search(packed, xt, None, None, None, False)
    return dict(zip(("alg_id", "split_k", "split_k_mode"), map(int, found), strict=False))


def _subclass() -> Make:
    """PyTorch's own tensor of sparse filters, its algorithm searched."""
    known: dict[str, int] = {}

    def make(w: Any) -> Product:
        from torch.sparse import SparseSemiStructuredTensorCUSPARSELT

        held: dict[str, Any] = {"w": SparseSemiStructuredTensorCUSPARSELT.from_dense(w)}

        def product(xt: Any) -> Any:
            if not known:
                known["alg_id"] = _searched(held["w"].packed, xt)["alg_id"]
            held["w"].alg_id_cusparselt = known["alg_id"]  # from_dense takes it in some versions of PyTorch alone
            return held["w"] @ xt

        return product

    return make
