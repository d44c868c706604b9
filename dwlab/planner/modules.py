"""Kernels of a layer or of two neighbours, "modules": what they cost on a GPU with a tile, and their best tile.

**Accesses** (GMA, global memory accesses): what the blocks of a kernel read and write with a given tile, from
`accesses`. The sectors that our own kernels request are in their traffic formulas; a plan decides between kernels that
are yet to be chosen, and knows only the accesses.

**Limits** of a GPU, in bytes of the layer's dtype: shared memory of a block; shared memory and accumulators together,
by the multiprocessor's L1; and redundant multiply-adds of a fused kernel, by a bound. With objective "gma" also at
least as many blocks as multiprocessors, as in the paper; with "time" too few blocks cost time instead.

**L2**. Maps that a kernel reads and writes stay in the L2 if they fit into it together. Then fusion saves accesses to
the L2 and a launch, but hardly any device memory traffic. `Module.dram_bytes` counts by this rule, and a plan reports
of each map between fused layers whether it would have stayed.

**Time**: memory (the slower of device memory at the copy's bandwidth and the accesses at the L2's), multiply-adds at
their ceiling and the latency of a block's stages, smoothed as in `timemodel`, and a constant per kernel, all divided by
the `efficiency` of kernels of the kind (1 if Rules.kernels is "ideal"). Bytes alone favour any fusion that saves some,
even one that leaves most multiprocessors idle, computes a map twice or goes through a hundred stages in series; and
they see no gain in one launch less. Time weighs all of it in one unit, so "time" is the default objective; "gma" is the
paper's.

Modules and the search (tile sides and filters double) follow Qararyah, Azhar, Maleki and Trancoso, "Fusing Depthwise
and Pointwise Convolutions for Efficient Inference on GPUs", arXiv 2404.19331; models, limits and choice are our own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dwlab.gpu import occupancy
from dwlab.gpu import specs as gpus
from dwlab.gpu.machine import Machine
from dwlab.kernels import registry
from dwlab.model import timemodel
from dwlab.planner import efficiency
from dwlab.planner.accesses import Accesses, Conv, Tile, dw, dwpw, line, pw, pwdw, pwpw, sizes, tiles
from dwlab.planner.efficiency import IDEAL, Efficiency
from dwlab.problems import nearest
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.networks import macs

OUTPUTS = 128
"""Outputs that a block has at least, where there are so many: a warp for each of a multiprocessor's four schedulers."""

RESIDENT = 8
"""Blocks on a multiprocessor at most, as of 256 threads each."""

STAGE_CYCLES = timemodel.L2_CYCLES
"""Clocks that a block waits at each stage: values from the L2, which the next stage's arithmetic needs."""

NEAR = 0.05
"""Predicted times that differ by less are no reason to read more: of such tiles the one with fewest bytes is taken."""

REDUNDANT = 1.0
"""Multiply-adds that a fused kernel may do more, as a fraction of those of its layers."""

OBJECTIVES = ("time", "gma")
KERNELS = ("ours", "ideal")


class PlanError(ValueError):
    """A plan that cannot be made; the message says which limit is in the way, or what to give."""


# ---------------------------------------------------------------------------------------------------------------- tiles


def doubling(size: int, least: int = 1) -> tuple[int, ...]:
    """least, 2·least, 4·least, … below `size`, and `size` itself."""
    found, value = [], min(least, size)
    while value < size:
        found.append(value)
        value *= 2
    return (*found, size)


def _map_tiles(layer: DepthwiseConv2d, channels: Iterable[int]) -> Iterable[Tile]:
    """Tiles of a depthwise layer's output."""
    return (Tile(c, h, w) for c in channels for h in doubling(layer.P) for w in doubling(layer.Q))


def _line_tile_sizes(layer: Pointwise, filters: int) -> Iterable[Tile]:
    """Runs of a pointwise layer's pixels."""
    return (Tile(f, 1, m) for f in doubling(filters, 8) for m in doubling(line(layer)[1], 8))


def _whole(layer: DepthwiseConv2d, tile: Tile) -> bool:
    return (tile.rows, tile.columns) == (layer.P, layer.Q)


@dataclass(frozen=True)
class Kind:
    """A kernel that the planner knows: the layers that it takes ("dw", "pw"), its accesses, and the tiles to try."""

    name: str
    takes: tuple[str, ...]
    accesses: Callable[..., Accesses]
    tiles: Callable[..., Iterable[Tile]]


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("dw", ("dw",), dw, lambda one: _map_tiles(one, doubling(one.C))),
        Kind("pw", ("pw",), pw, lambda one: _line_tile_sizes(one, one.F)),
        Kind("dwpw", ("dw", "pw"), dwpw, lambda one, two: _map_tiles(one, doubling(two.F, 8))),
        Kind("pwdw", ("pw", "dw"), pwdw, lambda one, two: (Tile(c, two.P, two.Q) for c in doubling(two.C))),
        Kind(
            "pwdw_r",
            ("pw", "dw"),
            pwdw,
            lambda one, two: (tile for tile in _map_tiles(two, doubling(two.C, 8)) if not _whole(two, tile)),
        ),
        Kind("pwpw", ("pw", "pw"), pwpw, lambda one, two: _line_tile_sizes(one, two.F)),
    )
}
"""Name -> kernel. Those of one layer, then the modules. A module of three layers is one more entry."""

FUSED = tuple(name for name, kind in KINDS.items() if len(kind.takes) > 1)
"""The modules."""

NAMES = {name: name.upper() for name in KINDS}


def pattern(layers: Sequence[Conv]) -> tuple[str, ...]:
    return tuple("dw" if isinstance(layer, DepthwiseConv2d) else "pw" for layer in layers)


# -------------------------------------------------------------------------------------------------- bytes, limits, time


@dataclass(frozen=True)
class Module:
    """A kernel for one or more neighbouring layers, with its tile, on a GPU.

    gma_bytes: all accesses, which at least the L2 serves. dram_bytes: those that go to device memory. shared_bytes: of
    a block. time_us: predicted. redundant: multiply-adds more than the unfused layers', as a fraction. between_bytes:
    of the maps that are never stored.
    """

    layers: tuple[Conv, ...]
    accesses: Accesses
    gma_bytes: int
    dram_bytes: int
    shared_bytes: int
    time_us: float
    redundant: float
    between_bytes: int

    @property
    def kind(self) -> str:
        """Its name in KINDS."""
        return self.accesses.kind

    @property
    def tile(self) -> Tile:
        """The outputs that a block computes."""
        return self.accesses.tile

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("kind", "gma_bytes", "dram_bytes", "shared_bytes", "redundant", "between_bytes")
        return {name: getattr(self, name) for name in names} | {
            "tile": asdict(self.tile), "blocks": self.accesses.blocks, "elements": dict(self.accesses.elements),
            "predicted_us": number(self.time_us),
        }  # fmt: skip


def number(value: float | None) -> float | None:
    """A number for JSON: None of NaN, a time that is not known."""
    return None if value is None or math.isnan(value) else value


def stays(layers: tuple[Conv, ...], l2_bytes: int) -> bool:
    """Whether the maps that a kernel reads and writes (x, r, y) fit into the L2 together."""
    return sum(size for name, (size, _) in sizes(layers).items() if name in "xry") <= l2_bytes


def dram_bytes(layers: tuple[Conv, ...], accesses: Accesses, l2_bytes: int) -> int:
    """Bytes that go to or come from device memory; the other accesses end in the L2.

    Maps: none if they stay in the L2, where the layer before left them; else each element that is requested once,
    since blocks that share a halo or a run of pixels run at about the same time. Filters: once, if those of an array
    fit; else as often as they are read.
    """
    total, in_l2 = 0, stays(layers, l2_bytes)
    for name, (size, each) in sizes(layers).items():
        if name in "xry":
            total += 0 if in_l2 else min(size, each * accesses.elements[name])
        else:
            total += size if size <= l2_bytes else each * accesses.elements[name]
    return total


def pointwise_rate(gpu: Machine, dtype: str) -> float:
    """Pointwise multiply-adds over those of plain float32: on tensor cores in 16 bits, and twice as many in int8.

    float32: from compute capability 8.0 on as three products in TF32, which tensor cores compute at half the rate of 16
    bits, where that is faster. Without tensor cores int8 takes dp4a, four a lane, and 16 bits are computed in float32.
    """
    # TU116 and TU117, sold as GTX 16xx, are of compute capability 7.5 without tensor cores (NVIDIA's specifications).
    tensor = 0 if " GTX 16" in f" {gpu.name}" else occupancy.limits(tuple(gpu.compute_capability)).tensor_fmas
    fp32 = gpus.lanes(gpu.compute_capability)[0]
    if dtype == "float32":
        return max(1.0, tensor / 6 / fp32) if tuple(gpu.compute_capability) >= (8, 0) else 1.0
    if dtype == "int8":
        return max(4.0, 2 * tensor / fp32)
    return max(1.0, tensor / fp32)


def time_us(
    accesses: Accesses, gma: int, dram: int, shared: int, gpu: Machine, dtype: str, how: Efficiency = IDEAL
) -> float:
    """Predicted time of a kernel in a CUDA graph. gma, dram: bytes; shared: bytes of a block. gpu: with ceilings
    (`gpus.find`). how: the efficiency of such a kernel.

    Blocks go over the multiprocessors in waves; in the last, or only one, some have none: what a multiprocessor does,
    accesses and multiply-adds, takes longer by full waves over blocks. Device memory is kept busy by fewer. Blocks that
    are resident together wait together.
    """
    ceilings = gpu.ceilings
    idle = tiles(accesses.blocks, gpu.sms) * gpu.sms / accesses.blocks
    memory = dram / ceilings.copy_gbps / 1e3
    if ceilings.l2_gbps:
        memory = max(memory, idle * gma / ceilings.l2_gbps / 1e3)
    arithmetic = 0.0
    if ceilings.fma_tflops:
        rate = pointwise_rate(gpu, dtype)
        share = how.pointwise if rate > 1 else 1.0  # of tensor cores; plain lanes are far easier to keep busy
        alike = accesses.depthwise_macs / how.depthwise + accesses.pointwise_macs / rate / share
        arithmetic = idle * 2 * alike / ceilings.fma_tflops / 1e6
    resident = max(1, min(RESIDENT, gpu.shared_per_sm // max(1, shared)))
    waits = tiles(accesses.blocks, gpu.sms * resident) * accesses.stages * STAGE_CYCLES / gpus.boost_mhz(gpu)
    return timemodel.smooth([memory / how.memory, arithmetic, how.waits * waits]) + how.kernel_us


def l1_bytes(gpu: Machine) -> int:
    """On-chip memory of a multiprocessor that L1 and shared memory share."""
    return 1024 * occupancy.limits(tuple(gpu.compute_capability)).l1_kib


@dataclass(frozen=True)
class Rules:
    """The rules by which a plan is made.

    objective: "time" or "gma". redundant: most multiply-adds more in a fused kernel, a fraction.
    modules: kinds of fused kernels that may be used; none: layer by layer. kernels: those whose time is predicted,
    "ours", with the `efficiency` of this workbook's that can start there, or "ideal"; by "gma" always ideal ones.
    Raises PlanError for what these cannot be.
    """

    objective: str = "time"
    redundant: float = REDUNDANT
    modules: tuple[str, ...] = FUSED
    kernels: str = "ours"

    def __post_init__(self) -> None:
        number = isinstance(self.redundant, (int, float)) and not isinstance(self.redundant, bool)
        if not number or not math.isfinite(self.redundant) or self.redundant < 0:
            raise PlanError(f"redundant is {self.redundant!r}; it must be a number from 0 up")
        object.__setattr__(self, "modules", tuple(self.modules))
        named = [("is no objective", self.objective, OBJECTIVES), ("are no kernels", self.kernels, KERNELS)]
        for what, name, known in [*named, *(("is no module", one, FUSED) for one in self.modules)]:
            if name not in known:
                raise PlanError(f"there {what} {name!r}. {nearest(str(name), known)}")

    @property
    def whose(self) -> str:
        """The kernels that a plan is of: by bytes ideal ones."""
        return self.kernels if self.objective == "time" else "ideal"

    def efficiency(self, kind: str, dtype: str) -> Efficiency:
        """The efficiency of kernels of a kind."""
        return IDEAL if self.whose == "ideal" else efficiency.of(kind, dtype)

    def cost(self, module: Module) -> float:
        """The module's share of what a plan minimises: predicted µs, or bytes of accesses."""
        return module.time_us if self.objective == "time" else module.gma_bytes


@functools.lru_cache(1 << 12)
def unknown(problem: Conv | Fused, gpu: Machine, rules: Rules) -> str:
    """Why a layer or a pair has no kernel of known time on a GPU, and which others would start; "" if it has one."""
    if rules.whose == "ideal":
        return ""
    stages = registry.stages(problem.op, problem.main_path)
    why = {one.id: one.why_not(problem, gpu) for one in sorted(stages, key=lambda one: problem.dtype not in one.dtypes)}
    known = [text for id, text in why.items() if id in efficiency.STAGES]
    slow = ", ".join(id.split("/")[-1] for id, text in why.items() if not text)
    return "" if "" in known else f"{f'only {slow}, of unknown time' if slow else 'no kernel'}: {known[0]}"


@functools.lru_cache(1 << 12)
def best(kind: str, layers: tuple[Conv, ...], gpu: Machine, rules: Rules = Rules()) -> Module | str:
    """The best tile for a kernel of these layers on a GPU; or, where no tile fits, which limit is in the way.

    gpu: with ceilings. Of tiles that are as good, or within NEAR in time, the one with fewest bytes, then most blocks.
    """
    made, fused, last = KINDS[kind], len(layers) > 1, layers[-1]
    enough = min(OUTPUTS, last.channels_out * last.P * last.Q)
    tried = [made.accesses(*layers, tile) for tile in made.tiles(*layers) if tile.channels * tile.pixels >= enough]
    if not tried:
        return f"a part of the map ({last.P} × {last.Q}) has no {enough} outputs for a block"
    small = [one for one in tried if _shared(layers, one) <= gpu.shared_per_block]
    if not small:
        least = min(tried, key=lambda one: _shared(layers, one))
        return (
            f"shared memory: the least tile ({least.tile}) needs {_shared(layers, least):,} bytes a block, "
            f"{gpu.name} allows {gpu.shared_per_block:,}"
        )
    candidates = [module_of(one, layers, gpu, rules) for one in small]
    least = min(candidates, key=_on_chip)
    candidates = [one for one in candidates if _on_chip(one) <= l1_bytes(gpu)]
    if not candidates:
        return (
            f"L1: the least tile ({least.tile}) needs {_on_chip(least):,} bytes with its accumulators, "
            f"{gpu.name} has {l1_bytes(gpu):,}"
        )
    least = min(candidates, key=lambda one: one.redundant)
    candidates = [one for one in candidates if not fused or one.redundant <= rules.redundant]
    if not candidates:
        return (
            f"redundant work: {100 * least.redundant:.0f} % more multiply-adds at least (tile {least.tile}), "
            f"{100 * rules.redundant:.0f} % are allowed"
        )
    if rules.objective == "gma":
        most = max(one.accesses.blocks for one in candidates)
        if fused and most < gpu.sms:
            return f"blocks: {most:,} at most, {gpu.name} has {gpu.sms} multiprocessors"
        # A layer must be computed somehow: if no tile gives every multiprocessor a block, those with the most do.
        candidates = [one for one in candidates if one.accesses.blocks >= min(most, gpu.sms)]
    enough = min(map(rules.cost, candidates)) * (1 + NEAR * (rules.objective == "time"))
    candidates = [one for one in candidates if rules.cost(one) <= enough]
    return min(candidates, key=lambda one: (one.gma_bytes, -one.accesses.blocks))


def _shared(layers: tuple[Conv, ...], accesses: Accesses) -> int:
    """Bytes of shared memory of a block."""
    return layers[0].itemsize * sum(accesses.shared.values())


def _on_chip(module: Module) -> int:
    """These, and four bytes for each sum that is kept."""
    return module.shared_bytes + 4 * module.accesses.accumulators


def module_of(accesses: Accesses, layers: tuple[Conv, ...], gpu: Machine, rules: Rules = Rules()) -> Module:
    """A kernel of these layers with the tile of its accesses: bytes, limits and predicted time on a GPU."""
    each = {name: size for name, (_, size) in sizes(layers).items()}
    gma = sum(each[name] * count for name, count in accesses.elements.items())
    dram = dram_bytes(layers, accesses, gpu.l2_bytes or 0)
    shared, dtype = _shared(layers, accesses), layers[0].dtype
    return Module(
        layers=layers,
        accesses=accesses,
        gma_bytes=gma,
        dram_bytes=dram,
        shared_bytes=shared,
        time_us=time_us(accesses, gma, dram, shared, gpu, dtype, rules.efficiency(accesses.kind, dtype)),
        redundant=accesses.macs / sum(map(macs, layers)) - 1,
        between_bytes=sum(sizes((layer,))["y"][0] for layer in layers[:-1]),
    )
