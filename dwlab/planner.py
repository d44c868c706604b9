"""FusePlanner: which layers of a network to put into one kernel, and with which tiles.

`plan("mobilenet_v2", "t4")` decides for each depthwise and pointwise layer whether it is a kernel of its own or shares
one with its neighbour, so that the map between the two never reaches global memory. Five things make it up:

**Accesses** (GMA, global memory accesses): what the blocks of a kernel read and write with a given tile, from
`dwlab.accesses`. Whether such an access ends in the L2 or in device memory is the third thing. What our own kernels at
their tiles ask for beyond them, in sectors, `dwlab.asked` foresees; decisions are between kernels yet to be chosen, and
know only the accesses.

**Limits**, from the GPU in bytes of the layer's dtype: what a block stages in shared memory against what a block may
have; that and its accumulators against the multiprocessor's L1; multiply-adds that a fused kernel does more than the
layers apart, against a bound. With objective "gma" also at least as many blocks as multiprocessors, as the paper has
it; with "time" too few blocks cost time instead.

**L2**. Where the maps that a kernel reads and writes fit into the L2 together, they stay there from the kernel that
writes them to the one that reads them, fused or not: then fusion saves accesses to the L2 and a launch, but hardly any
device memory traffic. `Module.dram_bytes` counts by this rule, and a plan says of each map between fused layers whether
it would have stayed.

**Time**: memory (the slower of device memory at the copy's bandwidth and the accesses at the L2's), multiply-adds at
their ceiling and the waits of a block's stages, smoothed as in `timemodel`, and what each kernel costs beside its work;
all of it for the shares of the ceilings that kernels of a kind reach (`reached`). Bytes alone
call every fusion a gain that saves some, also one that leaves most multiprocessors idle, computes a map twice or goes
through a hundred stages one after the other; and none that saves only a launch. Time weighs all of it in one unit. So
"time" is the objective, unless "gma", the paper's, is asked for. The shares were fitted to recorded kernels of these
layers, unless Rules.kernels is "ideal"; what the decisions are worth, `judge` says from measured times.

**The plan**: layers are a path, modules are pieces of it, costs add up; so dynamic programming over the path finds the
best of all partitions exactly, and no layer can lie in two modules (the paper judges pairs alone, where it can).

Modules and the search (tile sides and filters double) follow Qararyah, Azhar, Maleki and Trancoso, "Fusing Depthwise
and Pointwise Convolutions for Efficient Inference on GPUs", arXiv 2404.19331; models, limits and choice are our own.
"""

from __future__ import annotations

import functools
import html
import json
import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dwlab import gpus, machine, networks, reached, records, timemodel
from dwlab.accesses import Accesses, Conv, Tile, dw, dwpw, line, pw, pwdw, pwpw, sizes, tiles
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.machine import Machine
from dwlab.networks import Network, macs, summary
from dwlab.problems import nearest
from dwlab.reached import IDEAL, Reached

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

# CUDA C++ Programming Guide and tuning guides, "unified data cache": KiB of an SM that L1 and shared memory share. 6.0
# and 6.1 have them apart: the sum.
L1_KIB: dict[tuple[int, int], int] = {
    (6, 0): 88, (6, 1): 144, (7, 0): 128, (7, 5): 96, (8, 0): 192, (8, 6): 128, (8, 7): 192, (8, 9): 128, (9, 0): 256,
    (10, 0): 256, (10, 3): 256, (12, 0): 128, (12, 1): 128,
}  # fmt: skip
"""Compute capability -> on-chip memory of a multiprocessor."""

# NVIDIA's whitepapers of each architecture: dense, 16-bit factors, float32 sums; 8.6 and 8.9 of the professional cards.
TENSOR_FMAS: dict[tuple[int, int], int] = {
    (7, 0): 512, (7, 5): 512, (8, 0): 1024, (8, 6): 512, (8, 7): 1024, (8, 9): 512, (9, 0): 2048, (10, 0): 4096,
}  # fmt: skip
"""Compute capability -> multiply-adds a clock and multiprocessor on tensor cores; where not listed, none are used."""


class PlanError(ValueError):
    """A plan that cannot be made; the message says which limit is in the way, or what to give."""


# --------------------------------------------------------------------------------------------------------------- tiles


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

NAMES = {"dw": "DW", "pw": "PW", "dwpw": "DWPW", "pwdw": "PWDW", "pwdw_r": "PWDW_R", "pwpw": "PWPW"}


def _pattern(layers: Sequence[Conv]) -> tuple[str, ...]:
    return tuple("dw" if isinstance(layer, DepthwiseConv2d) else "pw" for layer in layers)


# ------------------------------------------------------------------------------------------------- bytes, limits, time


@dataclass(frozen=True)
class Module:
    """A kernel for one or more neighbouring layers, with its tile, on a GPU.

    gma_bytes: all accesses, which at least the L2 serves. dram_bytes: those that go to device memory. shared_bytes: of
    a block. time_us: predicted. redundant: multiply-adds more than the layers apart, as a fraction. between_bytes: of
    the maps that are never stored.
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
        """What a block computes."""
        return self.accesses.tile

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        tile = self.tile
        return {
            "kind": self.kind,
            "tile": {"channels": tile.channels, "rows": tile.rows, "columns": tile.columns},
            "blocks": self.accesses.blocks,
            "elements": dict(self.accesses.elements),
            "gma_bytes": self.gma_bytes,
            "dram_bytes": self.dram_bytes,
            "shared_bytes": self.shared_bytes,
            "predicted_us": self.time_us,
            "redundant": self.redundant,
            "between_bytes": self.between_bytes,
        }


def stays(layers: tuple[Conv, ...], l2_bytes: int) -> bool:
    """Whether the maps that a kernel reads and writes (x, r, y) fit into the L2 together."""
    return sum(size for name, (size, _) in sizes(layers).items() if name in "xry") <= l2_bytes


def dram_bytes(layers: tuple[Conv, ...], accesses: Accesses, l2_bytes: int) -> int:
    """Bytes that go to or come from device memory; the other accesses end in the L2.

    Maps: none if they stay in the L2, where the layer before left them; else each element that is asked for once,
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
    tensor = 0 if " GTX 16" in f" {gpu.name}" else TENSOR_FMAS.get(tuple(gpu.compute_capability), 0)
    fp32 = gpus.lanes(gpu.compute_capability)[0]
    if dtype == "float32":
        return max(1.0, tensor / 6 / fp32) if tuple(gpu.compute_capability) >= (8, 0) else 1.0
    if dtype == "int8":
        return max(4.0, 2 * tensor / fp32)
    return max(1.0, tensor / fp32)


def time_us(
    accesses: Accesses, gma: int, dram: int, shared: int, gpu: Machine, dtype: str, how: Reached = IDEAL
) -> float:
    """Predicted time of a kernel in a CUDA graph. gma, dram: bytes; shared: bytes of a block. gpu: with ceilings
    (`gpus.find`). how: what share of these such a kernel reaches.

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
    return 1024 * L1_KIB.get(tuple(gpu.compute_capability), gpu.shared_per_sm // 1024)


@dataclass(frozen=True)
class Rules:
    """How a plan is made. objective: "time" or "gma". redundant: most multiply-adds more in a fused kernel, a fraction.

    modules: kinds of fused kernels that may be used, none for layers apart. kernels: those whose time is predicted,
    "ours", with what this workbook's reach of the ceilings (`reached`), or "ideal".
    Raises PlanError for what these cannot be.
    """

    objective: str = "time"
    redundant: float = REDUNDANT
    modules: tuple[str, ...] = FUSED
    kernels: str = "ours"

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise PlanError(f"there is no objective {self.objective!r}. {nearest(str(self.objective), OBJECTIVES)}")
        if self.kernels not in KERNELS:
            raise PlanError(f"there are no kernels {self.kernels!r}. {nearest(str(self.kernels), KERNELS)}")
        number = isinstance(self.redundant, (int, float)) and not isinstance(self.redundant, bool)
        if not number or not math.isfinite(self.redundant) or self.redundant < 0:
            raise PlanError(f"redundant is {self.redundant!r}; it must be a number from 0 up")
        object.__setattr__(self, "modules", tuple(self.modules))
        for name in self.modules:
            if name not in FUSED:
                raise PlanError(f"there is no module {name!r}. {nearest(str(name), FUSED)}")

    def reached(self, kind: str, dtype: str) -> Reached:
        """What the kernels of a kind reach."""
        return IDEAL if self.kernels == "ideal" else reached.of(kind, dtype)

    def cost(self, module: Module) -> float:
        """What a plan adds up: predicted µs, or bytes of accesses."""
        return module.time_us if self.objective == "time" else module.gma_bytes


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
        time_us=time_us(accesses, gma, dram, shared, gpu, dtype, rules.reached(accesses.kind, dtype)),
        redundant=accesses.macs / sum(map(macs, layers)) - 1,
        between_bytes=sum(sizes((layer,))["y"][0] for layer in layers[:-1]),
    )


# ---------------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True)
class Step:
    """One kernel of a plan. layers: names. apart: the same layers as kernels of their own, each at its best.

    in_l2: whether the maps between would have stayed in the L2 anyway. note: why a layer is not fused with the next.
    """

    layers: tuple[str, ...]
    module: Module
    apart: tuple[Module, ...]
    in_l2: bool = False
    note: str = ""

    @property
    def fused(self) -> bool:
        """Whether it is of more than one layer."""
        return len(self.layers) > 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        apart = [one.to_dict() for one in self.apart]
        return {"layers": list(self.layers), "module": self.module.to_dict(), "apart": apart, "in_l2": self.in_l2,
                "note": self.note}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two neighbours that may be fused: their best module, or which limit is in the way.

    fuse: whether the module costs less than the two apart. chosen: whether it is in the plan, where a layer has only
    one kernel and pairs that share one exclude each other.
    """

    layers: tuple[str, str]
    module: Module | None
    apart: tuple[Module, Module]
    chosen: bool
    limit: str = ""

    fuse: bool = False

    @property
    def gain_us(self) -> float | None:
        """Predicted time that fusing the two saves."""
        return None if self.module is None else sum(one.time_us for one in self.apart) - self.module.time_us

    @property
    def saved_bytes(self) -> int | None:
        """Accesses that fusing the two saves, bytes."""
        return None if self.module is None else sum(one.gma_bytes for one in self.apart) - self.module.gma_bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "layers": list(self.layers),
            "fuse": self.fuse,
            "chosen": self.chosen,
            "module": None if self.module is None else self.module.to_dict(),
            "predicted_gain_us": self.gain_us,
            "saved_bytes": self.saved_bytes,
            "limit": self.limit,
        }


@dataclass(frozen=True)
class Plan:
    """Which layers of a network share a kernel on a GPU, with tiles; what it should bring.

    pairs: all neighbours that may be fused, whether they are or not.
    """

    network: Network
    gpu: Machine
    rules: Rules
    steps: tuple[Step, ...]
    pairs: tuple[Pair, ...]

    @property
    def fused(self) -> tuple[Fused, ...]:
        """The pairs that share a kernel."""
        return tuple(Fused(*step.module.layers) for step in self.steps if step.fused)

    @property
    def cost(self) -> float:
        """What was made least: µs or bytes."""
        return sum(self.rules.cost(step.module) for step in self.steps)

    def total(self, what: str, apart: bool = False) -> float:
        """Sum over the plan's kernels, or over the layers apart, of "gma_bytes", "dram_bytes", "time_us" or "macs"."""
        modules = [one for step in self.steps for one in (step.apart if apart else (step.module,))]
        return sum(one.accesses.macs if what == "macs" else getattr(one, what) for one in modules)

    @property
    def redundant(self) -> float:
        """Multiply-adds more than the layers apart, as a fraction of theirs."""
        return self.total("macs") / self.total("macs", apart=True) - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        made = self.network
        totals = {
            name: {"apart": self.total(field, apart=True), "plan": self.total(field)}
            for name, field in (("gma_bytes",) * 2, ("dram_bytes",) * 2, ("predicted_us", "time_us"), ("macs",) * 2)
        }
        return {
            "network": made.name,
            "batch": made.batch,
            "layout": made.layout,
            "dtype": made.dtype,
            "resolution": made.resolution,
            "gpu": self.gpu.to_dict(),
            "ceilings": self.gpu.ceilings.to_dict(),
            "objective": self.rules.objective,
            "totals": totals,
            "redundant": self.redundant,
            "steps": [step.to_dict() for step in self.steps],
            "pairs": [pair.to_dict() for pair in self.pairs],
        }

    def summary(self) -> str:
        """What the plan is and what it should bring, in sentences."""
        made, fused = self.network, sum(step.fused for step in self.steps)
        layers = sum(len(step.layers) for step in self.steps)
        before, after = self.total("time_us", apart=True), self.total("time_us")
        least = {"time": "least predicted time", "gma": "fewest bytes accessed"}[self.rules.objective]
        text = (
            f"{made.name} on {self.gpu.name}, batch {made.batch}, {made.layout}, {made.dtype}; {least}: "
            f"{layers} layers in {len(self.steps)} kernels, {fused} of them fused. "
            f"Accesses {self._change('gma_bytes')}, device memory {self._change('dram_bytes')}; "
            f"{_percent(self.redundant)} multiply-adds. Predicted, not measured: "
            f"{before:,.0f} µs apart, {after:,.0f} µs as planned."
        )
        stayed = sum(step.in_l2 for step in self.steps if step.fused)
        if stayed:
            l2 = f"the L2 ({self.gpu.l2_bytes / 2**20:g} MiB)"
            text += f" Of the {fused} fused kernels {stayed} keep a map out of {l2} that would have stayed there: "
            text += "these save accesses to the L2 and a kernel's start, but hardly any device memory traffic."
        return text

    def _change(self, what: str) -> str:
        before, after = self.total(what, apart=True), self.total(what)
        return f"{_mb(before)} MB → {_mb(after)} MB" + (f" ({_percent(after / before - 1)})" if before else "")

    HEAD = ("layer", "what", "kernel", "tile", "blocks", "MB apart", "MB", "DRAM MB apart", "DRAM MB", "MAC",
            "µs apart", "µs", "note")  # fmt: skip

    def rows(self) -> list[list[str]]:
        """The table's rows as text: one for each layer; a fused kernel's own numbers stand with its first."""
        rows = []
        for step in self.steps:
            module = step.module
            for number, (name, apart) in enumerate(zip(step.layers, step.apart, strict=True)):
                first = number == 0
                own = [
                    str(module.tile), f"{module.accesses.blocks:,}", _mb(apart.gma_bytes), _mb(module.gma_bytes),
                    _mb(apart.dram_bytes), _mb(module.dram_bytes), _percent(module.redundant) if step.fused else "",
                    f"{apart.time_us:,.1f}", f"{module.time_us:,.1f}",
                ]  # fmt: skip
                if not first:
                    own = [cell if place in (2, 4, 7) else "" for place, cell in enumerate(own)]
                kernel = NAMES[module.kind] if first else "└ " + NAMES[module.kind]
                rows.append([name, summary(apart.layers[0]), kernel, *own, self._note(step) if first else ""])
        return rows

    def _note(self, step: Step) -> str:
        if not step.fused:
            return step.note
        size = f"{_mb(step.module.between_bytes)} MB between"
        if not self.gpu.l2_bytes:
            return f"{size}, L2's size unknown"
        return f"{size}, would stay in L2" if step.in_l2 else size

    LEGEND = (
        "MB: all that blocks read and write, by the model of accesses. DRAM MB: of it, what reaches device memory. "
        "MAC: multiply-adds that are done more. Tile: channels×rows×columns of a block's output."
    )

    def table(self) -> records.Markdown:
        """The plan as Markdown."""
        lines = [self.HEAD, ["---"] * 4 + ["---:"] * 8 + ["---"], *self.rows()]
        text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return records.Markdown(f"{self.summary()}\n\n{text}\n\n{self.LEGEND}\n")

    def __str__(self) -> str:
        text = records.columns(self.HEAD, self.rows(), left=(0, 1, 2, 3, 12))
        return "\n".join([self.summary(), "", text, "", self.LEGEND, f"Ceilings: {self.gpu.ceilings.source}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self.rows())
        return (
            f"<table><caption>{html.escape(self.summary())}</caption>{row(self.HEAD, 'th')}{body}</table>"
            f"<p>{html.escape(self.LEGEND)} Ceilings: {html.escape(self.gpu.ceilings.source)}</p>"
        )


def _mb(size: float) -> str:
    return f"{size / 1e6:,.2f}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:+.0f} %" if abs(fraction) >= 0.005 else "+0 %"


def partition(count: int, costs: Mapping[tuple[int, int], float]) -> list[tuple[int, int]]:
    """The cheapest way to cut a path of `count` layers into pieces. costs: (start, end) of a piece -> its cost.

    With c(i, j) the cost of the piece of layers i … j-1, the best plan of the first j layers costs

        best(0) = 0,  best(j) = min over i < j of best(i) + c(i, j)

    since what follows layer j does not depend on how the layers before it were cut. Of equally good ones the last piece
    is the shortest. Raises PlanError if the pieces cover no path.
    """
    least: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, count + 1):
        ways = [(least[start][0] + costs[start, end], start) for start in reversed(range(end)) if (start, end) in costs]
        least.append(min(ways, key=lambda way: way[0], default=(math.inf, 0)))
    if least[-1][0] == math.inf:
        raise PlanError(f"no pieces with a cost cover all of the {count} layers: give one for each single layer")
    pieces, end = [], count
    while end:
        pieces.append((least[end][1], end))
        end = least[end][1]
    return pieces[::-1]


def chain(layers: Sequence[Conv]) -> Network:
    """A network of these layers, one after the other, named "1", "2", …; one that does not take what the layer before
    it gives starts anew. Raises PlanError for what is no such layer, and for none.
    """
    made: list[networks.Layer] = []
    for number, layer in enumerate(layers, 1):
        if not isinstance(layer, (DepthwiseConv2d, Pointwise)):
            raise PlanError(f"{layer!r} is no layer: a chain is made of DepthwiseConv2d and Pointwise")
        reads = networks.INPUT
        if made:
            one = made[-1].problem
            given = (one.N, one.channels_out, one.P, one.Q, one.layout, one.dtype, one.zero_y)
            if given == (layer.N, layer.C, layer.H, layer.W, layer.layout, layer.dtype, layer.zero_x):
                reads = str(number - 1)
        made.append(networks.Layer(str(number), "chain", layer, reads))
    if not made:
        raise PlanError("there is no layer: give at least one")
    first = layers[0]
    return Network("chain", tuple(made), first.N, first.layout, first.dtype, first.H)


def find(gpu: str | Machine) -> Machine:
    """The GPU to plan for, with ceilings: as `gpus.find` has it; "present" is the one in this machine.

    The present one has the ceilings of its record or datasheet; one that has neither is measured (a few seconds).
    Raises GpuError with the nearest name, and MachineError where no GPU is present.
    """
    if not isinstance(gpu, str) or gpu.strip().lower() != "present":
        return gpus.find(gpu)
    here = machine.present()
    recorded = machine.recorded().get(here.name)
    if recorded is not None:
        return gpus.find(replace(here, ceilings=recorded.ceilings))
    try:
        return gpus.find(here)
    except gpus.GpuError:
        return gpus.find(machine.measure(here, quick=True))


def plan(
    layers: str | Network | Sequence[Conv],
    gpu: str | Machine = "h200",
    *,
    dtype: str | None = None,
    batch: int | None = None,
    layout: str | None = None,
    rules: Rules | None = None,
) -> Plan:
    """The best partition of a network's layers into kernels on a GPU; about a second.

    layers: a name in networks.NETWORKS, taken in dtype (float32), batch (1) and layout (NCHW); or a Network, or layers
    that follow each other, which have their own. gpu: as `find` takes it.

    Raises NetworkError and GpuError for unknown names, and PlanError, with the limit, for a layer that no tile fits.
    """
    rules = rules or Rules()
    asked = {"dtype": dtype, "batch": batch, "layout": layout}
    given = {name: value for name, value in asked.items() if value is not None}
    if isinstance(layers, str):
        made = networks.network(layers, **given)
    elif given:
        raise PlanError(f"the layers have their own {', '.join(given)}: leave it out, or give a network's name")
    else:
        made = layers if isinstance(layers, Network) else chain(layers)
    gpu = find(gpu)
    apart = [_alone(layer, gpu, rules) for layer in made.layers]
    kernels: dict[tuple[int, int], Module | None] = {(i, i + 1): one for i, one in enumerate(apart)}
    for length in {len(KINDS[kind].takes) for kind in rules.modules}:
        for start in range(len(apart) - length + 1):
            module = _fused(made, start, length, gpu, rules)[0]
            if module is not None:
                kernels[start, start + length] = module
    costs = {piece: rules.cost(module) if module else 0.0 for piece, module in kernels.items()}
    pieces = [piece for piece in partition(len(apart), costs) if kernels[piece] is not None]
    pairs = {
        start: _pair(made, start, apart, (start, start + 2) in pieces, gpu, rules)
        for start in range(len(apart) - 1)
        if not made.joint(start)
    }
    steps = []
    for start, end in pieces:
        names = tuple(layer.name for layer in made.layers[start:end])
        note = _why(made, start, pairs, pieces) if end - start == 1 else ""
        inside = end - start > 1 and all(stays(one.layers, gpu.l2_bytes or 0) for one in apart[start:end])
        steps.append(Step(names, kernels[start, end], tuple(apart[start:end]), inside, note))
    return Plan(made, gpu, rules, tuple(steps), tuple(pairs.values()))


def _alone(layer: networks.Layer, gpu: Machine, rules: Rules) -> Module | None:
    """A layer as a kernel of its own; None for one that is not planned."""
    if not layer.planned:
        return None
    found = best(*_pattern([layer.problem]), (layer.problem,), gpu, rules)
    if isinstance(found, str):
        raise PlanError(f"no tile fits {layer}. {found[0].upper() + found[1:]}")
    return found


def _fused(made: Network, start: int, length: int, gpu: Machine, rules: Rules) -> tuple[Module | None, str]:
    """The best module of `length` layers from `start` on; or None, and which limit is in the way.

    No limit, "", where the graph or the rules forbid it.
    """
    if length < 2 or any(made.joint(index) for index in range(start, start + length - 1)):
        return None, ""
    layers = tuple(layer.problem for layer in made.layers[start : start + length])
    kinds = [kind for kind in rules.modules if KINDS[kind].takes == _pattern(layers)]
    found = {kind: best(kind, layers, gpu, rules) for kind in kinds}
    modules = [one for one in found.values() if isinstance(one, Module)]
    if modules:
        return min(modules, key=lambda one: (rules.cost(one), one.gma_bytes)), ""
    return None, "; ".join(f"{NAMES[kind]}: {limit}" for kind, limit in found.items())


def _pair(made: Network, start: int, apart: Sequence[Module], chosen: bool, gpu: Machine, rules: Rules) -> Pair:
    module, limit = _fused(made, start, 2, gpu, rules)
    names = tuple(layer.name for layer in made.layers[start : start + 2])
    if module is None and not limit:
        limit = "no module of the two is allowed"
    two = tuple(apart[start : start + 2])
    fuse = module is not None and rules.cost(module) < sum(map(rules.cost, two))
    return Pair(names, module, two, chosen, limit, fuse)


def _why(made: Network, start: int, pairs: Mapping[int, Pair], pieces: Sequence[tuple[int, int]]) -> str:
    """Why a layer that is alone is not fused with the next, in a few words."""
    if start + 1 >= len(made.layers) or not made.layers[start + 1].planned:
        return ""
    if start not in pairs:
        return made.joint(start)
    pair = pairs[start]
    if pair.module is None:
        return pair.limit
    if (start + 1, start + 2) not in pieces:
        return "the next is better fused with the one after it"
    return f"{NAMES[pair.module.kind]} with the next: {-pair.gain_us:+.1f} µs, {-pair.saved_bytes / 1e6:+.2f} MB"


# ---------------------------------------------------------------------------------------------- predicted and measured


IN_THE_L2 = "of the network's kernels, arrays in the L2 as far as they fit"
"""Where times of whole networks are from."""


@dataclass(frozen=True)
class Judged:
    """A pair's decision, each pair by itself, beside measured times. regret: time lost by it, as a fraction of the
    better of the two."""

    pair: Pair
    apart_us: float
    fused_us: float

    @property
    def right(self) -> bool:
        """Whether the faster of the two was decided for."""
        return self.regret == 0

    @property
    def regret(self) -> float:
        """0 for a right decision."""
        taken = self.fused_us if self.pair.fuse else self.apart_us
        return taken / min(self.fused_us, self.apart_us) - 1


@dataclass(frozen=True)
class Judgement:
    """A plan beside measured times. rows: a pair each, alike ones once. missing: kernels that no time was given for.

    plan_us: all kernels of the plan. best_us: the best partition, had the times been known. None where one is missing.
    source: where the times are from, if it is known. times: all of them, µs.
    """

    plan: Plan
    rows: tuple[Judged, ...]
    missing: tuple[str, ...] = ()
    plan_us: float | None = None
    best_us: float | None = None
    source: str = ""
    times: Mapping[Conv | Fused, float] = field(default_factory=dict)

    @property
    def unmeasured(self) -> int:
        """How many pairs, alike ones once, have no measurement."""
        alike = {tuple(one.layers for one in pair.apart) for pair in self.plan.pairs}
        return len(alike) - len(self.rows)

    @property
    def mean(self) -> float:
        """Of the pairs' regrets; there must be a pair."""
        return sum(row.regret for row in self.rows) / len(self.rows)

    @property
    def largest(self) -> float:
        """Of the pairs' regrets; there must be a pair."""
        return max(row.regret for row in self.rows)

    @property
    def regret(self) -> float | None:
        """What the plan takes longer than the best partition, as a fraction."""
        return None if self.plan_us is None else self.plan_us / self.best_us - 1

    def summary(self) -> str:
        """How often the decisions are right, and what the wrong ones cost."""
        network = self.plan.network
        if not self.rows:
            return (
                f"No pair of {network.name} on {self.plan.gpu.name} has measured times of both ways in "
                f"{network.dtype}, batch {network.batch}, {network.layout}: whether decisions are right is not known."
            )
        right = sum(row.right for row in self.rows)
        text = f"{network.name} on {self.plan.gpu.name}: {right} of {len(self.rows)} decisions are right"
        if self.unmeasured:
            text += f", {self.unmeasured} pairs have no measurement"
        text += f", mean regret {100 * self.mean:.1f} %, the largest {100 * self.largest:.1f} %"
        if self.regret is not None:
            text += (
                f"; the plan takes {self.plan_us:,.1f} µs, the best partition {self.best_us:,.1f} µs: "
                f"{100 * self.regret:.0f} % more"
            )
        return f"{text}." + (f" Times: {self.source}." if self.source else "")

    HEAD = ("pair", "what", "decision", "measured apart µs", "fused µs", "decision is", "regret")

    def cells(self) -> list[list[str]]:
        """The table's rows as text."""
        return [
            [
                " + ".join(row.pair.layers),
                " + ".join(summary(one.layers[0]) for one in row.pair.apart),
                NAMES[row.pair.module.kind] if row.pair.fuse else "apart",
                f"{row.apart_us:,.1f}",
                f"{row.fused_us:,.1f}",
                "right" if row.right else "wrong",
                f"{100 * row.regret:.1f} %",
            ]
            for row in self.rows
        ]

    def table(self) -> records.Markdown:
        """A row a pair, as Markdown."""
        lines = [self.HEAD, ["---"] * 3 + ["---:"] * 2 + ["---", "---:"], *self.cells()]
        text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
        return records.Markdown(f"{text}\n\n{self.summary()}\n")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rows = [
            row.pair.to_dict() | {"apart_us": row.apart_us, "fused_us": row.fused_us, "right": row.right,
                                  "regret": row.regret}
            for row in self.rows
        ]  # fmt: skip
        return {
            "rows": rows, "unmeasured": self.unmeasured, "missing": list(self.missing), "plan_us": self.plan_us,
            "best_us": self.best_us, "source": self.source,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [records.columns(self.HEAD, self.cells(), left=(0, 1, 2, 5)), "", self.summary()]
        return "\n".join([*lines, *(f"not measured: {one}" for one in self.missing)])

    __repr__ = __str__


EPILOGUE = frozenset(
    {"bias", "activation", "residual", "relu", "relu6", "gelu", "zero_x", "zero_y", "zero_r", "m_r"}
)
"""What of a layer's description costs every stage about the same."""


def bare(problem: Mapping[str, Any]) -> dict[str, Any]:
    """A described problem without bias, activation, residual, zero points; fused layers are described in words."""

    def words(text: str) -> str:
        return " ".join(word for word in text.split() if word.split("=")[0] not in EPILOGUE)

    kept = {key: value for key, value in problem.items() if key not in EPILOGUE}
    return {key: words(value) if key in ("first", "second") else value for key, value in kept.items()}


def measured_times(made: Plan, rows: Iterable[records.Measurement]) -> dict[Conv | Fused, float]:
    """The least recorded time, µs, of each layer of a plan and each pair that may be fused, on the plan's GPU.

    A row that differs only in bias, activation and residual counts, as networks share layers.
    """
    problems = {layer.problem for layer in made.network.layers if layer.planned}
    problems |= {Fused(*(one.layers[0] for one in pair.apart)) for pair in made.pairs}

    def key(op: str, problem: Any, dtype: str) -> tuple[str, str, str]:
        return op, records.shape_text(bare(records.describe_problem(problem))), dtype

    wanted: dict[tuple[str, str, str], list[Conv | Fused]] = {}
    for one in problems:
        wanted.setdefault(key(one.op, one, one.dtype), []).append(one)
    ops = {op for op, _, _ in wanted}
    found: dict[Conv | Fused, float] = {}
    for row in rows:
        if row.gpu == made.gpu.name and row.op in ops and row.dtype == made.network.dtype:
            for problem in wanted.get(key(row.op, row.problem, row.dtype), ()):
                found[problem] = min(row.time_us, found.get(problem, math.inf))
    return found


def network_times(made: Plan, runs: Iterable[records.Record]) -> dict[Conv | Fused, float]:
    """The times, µs, that the newest run with kernels of this very network took of its layers and pairs."""
    network = made.network
    asked = (network.name, network.batch, network.dtype, network.layout)
    problems = {layer.name: layer.problem for layer in network.layers}
    for run in reversed(list(runs)):
        rows = [
            row
            for row in run.sections.get("network_kernels", ())
            if (row["network"], row["batch"], row["dtype"], row["layout"]) == asked and run.gpu == made.gpu.name
        ]
        found: dict[Conv | Fused, float] = {}
        for row in rows:
            layers = [problems.get(name) for name in row["layers"].split(" + ")]
            if None not in layers:  # a name that the table no longer has
                found[layers[0] if len(layers) == 1 else Fused(*layers)] = row["time_us"]
        if found:
            return found
    return {}


def judged(made: Plan, runs: Sequence[records.Record] | None = None) -> Judgement:
    """`judge` by what is recorded: times of a run of this very network if there is one (`network_times`), with arrays
    in the L2 as far as they fit; or else of single layers and pairs (`measured_times`), with arrays out of it.
    """
    runs = records.load_runs() if runs is None else list(runs)
    times, source = network_times(made, runs), IN_THE_L2
    if not times:
        times = measured_times(made, [row for run in runs for row in run.measurements])
        source = "of single layers and pairs, arrays out of the L2 as far as that can be"
    return replace(judge(made, times), source=source)


def judge(made: Plan, times: Mapping[Conv | Fused, float]) -> Judgement:
    """A plan's decisions beside measured times. times: layer, or two as a Fused -> µs of its fastest kernel.

    Raises PlanError for a time that is no positive number.
    """
    for problem, value in times.items():
        if not math.isfinite(value) or value <= 0:
            raise PlanError(f"the time of {problem} is {value!r}; it must be a positive number of µs")
    rows: dict[Fused, Judged] = {}
    missing: dict[str, None] = {}
    index = {layer.name: number for number, layer in enumerate(made.network.layers)}
    costs: dict[tuple[int, int], float] = {}
    for number, layer in enumerate(made.network.layers):
        if layer.planned and layer.problem not in times:
            missing[layer.name] = None
        else:
            costs[number, number + 1] = times[layer.problem] if layer.planned else 0.0
    for pair in made.pairs:
        first, second = (one.layers[0] for one in pair.apart)
        fused, start = Fused(first, second), index[pair.layers[0]]
        if fused not in times:
            missing[f"{' and '.join(pair.layers)} in one kernel"] = None
            continue
        costs[start, start + 2] = times[fused]
        if first in times and second in times:
            rows.setdefault(fused, Judged(pair, times[first] + times[second], times[fused]))
    pieces = [(index[step.layers[0]], index[step.layers[-1]] + 1) for step in made.steps]
    if any(piece not in costs for piece in pieces) or any((n, n + 1) not in costs for n in range(len(index))):
        return Judgement(made, tuple(rows.values()), tuple(missing), times=times)
    taken = sum(costs[piece] for piece in pieces)
    least = sum(costs[piece] for piece in partition(len(index), costs))
    return Judgement(made, tuple(rows.values()), tuple(missing), taken, least, times=times)


# ------------------------------------------------------------------------------------------------------------- picture

COLOURS = {"dwpw": "#56B4E9", "pwdw": "#E69F00", "pwdw_r": "#F0E442", "pwpw": "#CC79A7"}
"""Of the modules: from Okabe and Ito's palette, told apart with any colour vision; hatches for print in grey."""

HATCHES = {"dwpw": "", "pwdw": "//", "pwdw_r": "..", "pwpw": "xx"}

PER_ROW = 13
"""Layers in a row of the picture."""


def draw(made: Plan, width: float = 11.0) -> Figure:
    """The network's layers as boxes, row after row; layers that share a kernel stand in one frame. A line joins a layer
    to the next where that reads it.

    width: inches. The figure's `alt` is `describe(made)`; a notebook shows both.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch, Patch

    from dwlab.simt.picture import with_alt

    step_of = {name: step for step in made.steps for name in step.layers}
    rows = _picture_rows(made)
    figure = Figure(figsize=(width, 0.7 + 0.92 * len(rows)), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.005, 0.005, 0.99, 1 - 0.32 / (0.7 + 0.92 * len(rows))))
    axes.set(xlim=(-0.1, PER_ROW + 0.1), ylim=(len(rows) + 0.25, -0.05))
    axes.axis("off")
    axes.set_title(_title(made), fontsize=10, loc="left")
    for y, row in enumerate(rows):
        for x, layer in enumerate(row):
            step = step_of.get(layer.name)
            if step and step.fused and step.layers[0] == layer.name:
                kind = step.module.kind
                frame = FancyBboxPatch(
                    (x + 0.03, y + 0.05), len(step.layers) - 0.06, 0.86, boxstyle="round,pad=0,rounding_size=0.06",
                    facecolor=COLOURS[kind], hatch=HATCHES[kind], edgecolor="black", lw=1.6,
                )  # fmt: skip
                axes.add_patch(frame)
            box = FancyBboxPatch(
                (x + 0.08, y + 0.13), 0.84, 0.7, boxstyle="round,pad=0,rounding_size=0.04",
                facecolor="white" if layer.planned else "0.9", edgecolor="0.35", lw=0.8, zorder=3,
            )  # fmt: skip
            axes.add_patch(box)
            axes.text(x + 0.5, y + 0.48, _box_text(layer), ha="center", va="center", fontsize=6.2, zorder=4)
            if x + 1 < len(row) and row[x + 1].input == layer.name:
                axes.plot([x + 0.92, x + 1.08], [y + 0.48] * 2, color="0.35", lw=0.8, zorder=2)
    used = [kind for kind in COLOURS if any(step.module.kind == kind for step in made.steps)]
    patches = [
        Patch(facecolor=COLOURS[kind], hatch=HATCHES[kind], edgecolor="black", label=f"{NAMES[kind]}, one kernel")
        for kind in used
    ]
    patches += [Patch(facecolor="white", edgecolor="0.35", label="a kernel of its own")]
    patches += [Patch(facecolor="0.9", edgecolor="0.35", label="not planned")]
    axes.legend(handles=patches, loc="lower left", ncols=len(patches), fontsize=8, frameon=False, borderpad=0)
    return with_alt(figure, describe(made))


def _picture_rows(made: Plan) -> list[list[networks.Layer]]:
    """Layers in rows of at most PER_ROW, none ending inside a kernel."""
    inside = {name for step in made.steps for name in step.layers[1:]}
    pieces: list[list[networks.Layer]] = []
    for layer in made.network.layers:
        if layer.name in inside:
            pieces[-1].append(layer)
        else:
            pieces.append([layer])
    rows: list[list[networks.Layer]] = [[]]
    for piece in pieces:
        if len(rows[-1]) + len(piece) > PER_ROW:
            rows.append([])
        rows[-1] += piece
    return rows


def _box_text(layer: networks.Layer) -> str:
    """The layer's name, what it is, and on which map."""
    block, _, role = layer.name.partition(".")
    words = summary(layer.problem).split(" ")
    lines = [" ".join(words[:-1]), words[-1]] if layer.planned else [words[0], " ".join(words[1:-1]), words[-1]]
    return "\n".join([f"{block} {role}".strip(), *(line for line in lines if line not in ("", role))])


def _title(made: Plan) -> str:
    network, fused = made.network, sum(step.fused for step in made.steps)
    return (
        f"{network.name} on {made.gpu.name}, batch {network.batch}, {network.dtype}: "
        f"{len(made.steps)} kernels, {fused} of them fused; accesses {made._change('gma_bytes')}, predicted"
    )


def describe(made: Plan) -> str:
    """The picture in words, for those who cannot see it."""
    fused = [f"{' and '.join(step.layers)} as {NAMES[step.module.kind]}" for step in made.steps if step.fused]
    text = f"{_title(made)}. A chain of {len(made.network.layers)} boxes, one for each layer; "
    return text + (f"in one frame are {'; '.join(fused)}." if fused else "no two stand in one frame.")


# ------------------------------------------------------------------------------------------------------------- command


def main(options: Namespace) -> int:
    """``python -m dwlab plan``: the table of a network's plan, its JSON, or its picture."""
    rules = Rules(options.objective, kernels=options.kernels)
    made = plan(
        options.network, options.gpu, dtype=options.dtype, batch=options.batch, rules=rules,
        layout=options.layout or ("NHWC" if options.judged else "NCHW"),  # what networks are measured in
    )  # fmt: skip
    if options.picture:
        try:
            draw(made).savefig(
                options.picture, format="png", metadata={"Software": None, "Description": describe(made)}
            )
        except OSError as error:
            raise PlanError(
                f"cannot write {options.picture}: {error.strerror}; give a file in a folder that is there"
            ) from None
    if options.judged:
        found = judged(made)
        print(json.dumps(found.to_dict(), indent=1, ensure_ascii=False) if options.json else found)
        return 0
    print(json.dumps(made.to_dict(), indent=1, ensure_ascii=False) if options.json else made)
    return 0
