"""Where sparse filters can pay: the roofline of a layer with them beside that of the same layer without.

A product takes the time of its bytes or of its operations, whichever is longer (Williams, Waterman and Patterson 2009).
Sparse tensor cores do the kept products at the dense rate, half of them in half the time, so operations gain up to
M / N, 2 in 2:4. Bytes gain what the filters get shorter: x and y stay. Where bytes bind nothing is gained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dwlab.problems.layers import Pointwise, SparsePointwise


@dataclass(frozen=True)
class Bound:
    """The least time of a product, in microseconds: of its compulsory bytes, and of its operations."""

    bytes_us: float
    flops_us: float

    @property
    def us(self) -> float:
        """The longer one."""
        return max(self.bytes_us, self.flops_us)

    @property
    def binds(self) -> str:
        """ "bytes" or "flops"."""
        return "bytes" if self.bytes_us >= self.flops_us else "flops"


@dataclass(frozen=True)
class Gain:
    """A layer's bounds with dense and with sparse filters."""

    dense: Bound
    sparse: Bound

    @property
    def most(self) -> float:
        """The speedup over the dense layer that the roofline allows."""
        return self.dense.us / self.sparse.us


def dense_layer(layer: SparsePointwise) -> Pointwise:
    """The same layer with filters of which no weight is left out."""
    sizes = layer.N, layer.C, layer.F, layer.H, layer.W, layer.layout, layer.dtype
    return Pointwise(*sizes, bias=layer.bias, activation=layer.activation, residual=layer.residual)


def bound(layer: Pointwise, gbps: float, tflops: float) -> Bound:
    """A layer's bounds at a bandwidth in GB/s, and a rate of dense float16 products in TFLOP/s.

    Raises ValueError for ceilings that are not positive.
    """
    if not (gbps > 0 and tflops > 0):
        raise ValueError(f"a bandwidth of {gbps} GB/s and a rate of {tflops} TFLOP/s: both must be positive")
    return Bound(layer.compulsory_bytes() / gbps / 1e3, layer.flops / tflops / 1e6)


def gain(layer: SparsePointwise, gbps: float, tflops: float) -> Gain:
    """The gain that the roofline allows sparse filters; `bound` says what the ceilings are."""
    return Gain(bound(dense_layer(layer), gbps, tflops), bound(layer, gbps, tflops))


def patterns(layer: SparsePointwise, forms: tuple[str, ...], gbps: float, tflops: float) -> dict[str, float]:
    """Pattern -> the speedup that the roofline allows the layer in it."""
    return {form: gain(replace(layer, pattern=form), gbps, tflops).most for form in forms}


@dataclass(frozen=True)
class Choice:
    """A pattern for a layer: the share of its filters' magnitudes that is kept, 0 to 1, and the layer's time in µs."""

    pattern: str
    kept: float
    us: float


def frontier(kept: Mapping[str, float], times: Mapping[str, float]) -> list[Choice]:
    """The patterns of which no other keeps as much in less time, or more in as little; the fastest first.

    kept: pattern -> sparsity.kept_magnitude, 1 of dense filters; times: pattern -> µs, of the same patterns.
    """
    found: list[Choice] = []
    for one in sorted(
        (Choice(form, kept[form], us) for form, us in times.items()), key=lambda one: (one.us, -one.kept)
    ):
        if not found or one.kept > found[-1].kept:
            found.append(one)
    return found


def within(choices: Iterable[Choice], budget: float) -> Choice:
    """The fastest that keeps at least `budget` of the magnitudes. Raises ValueError if none does."""
    given = list(choices)
    enough = [one for one in given if one.kept >= budget]
    if not enough:
        most = max((one.kept for one in given), default=0.0)
        raise ValueError(f"no pattern keeps {budget:g} of the magnitudes: at most {most:.3g} is kept")
    return min(enough, key=lambda one: (one.us, -one.kept))
