"""FusePlanner: which layers of a network to put into one kernel, and with which tiles.

`plan("mobilenet_v2", "t4")` decides for each depthwise and pointwise layer whether it is a kernel of its own or shares
one with its neighbour, so that the map between the two is never in global memory. `modules` has the cost of a kernel
with its best tile: accesses, limits, what stays in the L2, and time. `validation` compares the decisions with measured
times; `picture` draws them.

**Kernels**: a plan by time is of this workbook's that can start on the GPU: two layers share one only where a stage of
known times takes them; a layer that none takes has no time, and its note says why. Plans by bytes and of ideal kernels
need none, and say so.

**The plan**: layers are a path, modules are segments of it, costs add up. So dynamic programming over the path finds
the best of all partitions exactly, and no layer is in two modules (the paper decides each pair alone, where it can be).
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dwlab.gpu import machine
from dwlab.gpu import specs as gpus
from dwlab.gpu.machine import Machine
from dwlab.measure import device
from dwlab.planner.accesses import Conv
from dwlab.planner.modules import KINDS, NAMES, Module, PlanError, Rules, best, number, pattern, stays, unknown
from dwlab.problems import networks
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.networks import Network, summary
from dwlab.text import tabular, terminal
from dwlab.text.tabular import mb


@dataclass(frozen=True)
class Step:
    """One kernel of a plan. layers: names. unfused: the same layers as kernels of their own, each at its best.

    in_l2: whether the maps between would have stayed in the L2 anyway. note: why no time of its kernel is known, which
    is then NaN, or why a layer is not fused with the next.
    """

    layers: tuple[str, ...]
    module: Module
    unfused: tuple[Module, ...]
    in_l2: bool = False
    note: str = ""

    @property
    def fused(self) -> bool:
        """Whether it is of more than one layer."""
        return len(self.layers) > 1

    @property
    def untimed(self) -> bool:
        """Whether no time of its kernel is known; of a model of one's own PyTorch runs it."""
        return math.isnan(self.module.time_us)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"layers": list(self.layers), "module": self.module.to_dict(), "in_l2": self.in_l2, "note": self.note,
                "unfused": [one.to_dict() for one in self.unfused]}  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two neighbours that may be fused: their best module, or which limit is in the way.

    fuse: whether the module costs less than the two layers unfused. chosen: whether it is in the plan, where a layer
    has only one kernel and pairs that share one exclude each other.
    """

    layers: tuple[str, str]
    module: Module | None
    unfused: tuple[Module, Module]
    chosen: bool
    limit: str = ""

    fuse: bool = False

    @property
    def gain_us(self) -> float | None:
        """Predicted time that fusing the two saves."""
        return None if self.module is None else sum(one.time_us for one in self.unfused) - self.module.time_us

    @property
    def saved_bytes(self) -> int | None:
        """Accesses that fusing the two saves, bytes."""
        return None if self.module is None else sum(one.gma_bytes for one in self.unfused) - self.module.gma_bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "layers": list(self.layers), "fuse": self.fuse, "chosen": self.chosen,
            "module": None if self.module is None else self.module.to_dict(),
            "predicted_gain_us": number(self.gain_us), "saved_bytes": self.saved_bytes, "limit": self.limit,
        }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """A network cut into kernels for a GPU: the layers that share one, the tiles, and the predicted gain.

    pairs: all neighbours that may be fused, whether they are or not.
    """

    network: Network
    gpu: Machine
    rules: Rules
    steps: tuple[Step, ...]
    pairs: tuple[Pair, ...]

    @property
    def cost(self) -> float:
        """The sum that was minimised: µs or bytes."""
        return sum(self.rules.cost(step.module) for step in self.steps)

    def total(self, what: str, unfused: bool = False) -> Any:
        """Sum over the plan's kernels, or over the unfused layers, of "gma_bytes", "dram_bytes", "time_us" (None if
        one is not known) or "macs"."""
        modules = [one for step in self.steps for one in (step.unfused if unfused else (step.module,))]
        return number(sum(one.accesses.macs if what == "macs" else getattr(one, what) for one in modules))

    @property
    def redundant(self) -> float:
        """Multiply-adds more than the unfused layers', as a fraction of theirs."""
        return self.total("macs") / self.total("macs", unfused=True) - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        made, fields = self.network, ("batch", "layout", "dtype", "resolution")
        sums = {"gma_bytes": "gma_bytes", "dram_bytes": "dram_bytes", "predicted_us": "time_us", "macs": "macs"}
        totals = {name: {"unfused": self.total(of, unfused=True), "plan": self.total(of)} for name, of in sums.items()}
        return {"network": made.name} | {name: getattr(made, name) for name in fields} | {
            "gpu": self.gpu.to_dict(), "ceilings": self.gpu.ceilings.to_dict(), "objective": self.rules.objective,
            "kernels": self.rules.whose, "totals": totals, "redundant": self.redundant,
            "steps": [step.to_dict() for step in self.steps],
            "pytorch": {one.name: one.note for one in made.layers if one.note and not one.planned and made.traced},
            "pairs": [pair.to_dict() for pair in self.pairs],
        }  # fmt: skip

    def summary(self) -> str:
        """The plan and its predicted gain, in sentences."""
        made, fused = self.network, sum(step.fused for step in self.steps)
        layers = sum(len(step.layers) for step in self.steps)
        least = {"time": "least predicted time", "gma": "fewest bytes accessed"}[self.rules.objective]
        text = (
            f"{made.name} on {self.gpu.name}, batch {made.batch}, {made.layout}, {made.dtype}: "
            f"{self.times()}. {layers} layers in {_kernels(self.steps)}, {fused} of them "
            f"fused, for {least}. Accesses {self.change('gma_bytes')}, device memory {self.change('dram_bytes')}; "
            f"{_percent(self.redundant)} multiply-adds."
        )
        stayed = sum(step.in_l2 for step in self.steps if step.fused)
        if stayed:
            l2 = f"the L2 ({self.gpu.l2_bytes / 2**20:g} MiB)"
            text += f" In {stayed} of the {fused} fused a map is kept out of {l2} that would have stayed there: "
            text += "these save accesses to the L2 and a kernel's start, but hardly any device memory traffic."
        return text

    def times(self) -> str:
        """Predicted µs layer by layer and of the plan, or of how many layers none is known."""
        before, after = self.total("time_us", unfused=True), self.total("time_us")
        known = [step.module.time_us for step in self.steps if not step.untimed]
        lacking, change = len(self.steps) - len(known), f"{sum(known):,.0f} µs in {_kernels(known)}"
        if lacking and not (known and self.network.traced):
            return f"no time, as none is known of {lacking} of the kernels; their notes say why"
        ideal = " of ideal kernels, whether they can start there or not" * (self.rules.whose == "ideal")
        if before is not None:
            change = f"{before:,.0f} µs unfused, {after:,.0f} µs as planned ({_percent(after / before - 1)})"
        return f"{change}, predicted{ideal}, not measured"

    def change(self, what: str) -> str:
        before, after = self.total(what, unfused=True), self.total(what)
        return f"{mb(before)} MB → {mb(after)} MB" + (f" ({_percent(after / before - 1)})" if before else "")

    HEAD = ("layer", "what", "kernel", "tile", "blocks", "MB unfused", "MB", "DRAM MB unfused", "DRAM MB", "MAC",
            "µs unfused", "µs", "note")  # fmt: skip

    SPARE = ("DRAM MB unfused", "DRAM MB", "blocks", "MAC", "MB unfused", "tile", "note", "MB")
    """Columns that a narrow terminal goes without, the first of them first."""

    def rows(self) -> list[list[str]]:
        """The table's rows as text: one for each layer; a fused kernel's own numbers stand with its first."""
        rows = []
        steps = {step.layers[0]: step for step in self.steps}
        for one in self.network.layers:
            if one.name not in steps:
                if one.note and not one.planned and self.network.traced:
                    rows.append([one.name, summary(one.problem), "PyTorch", *[""] * 9, one.note])
                continue
            step = steps[one.name]
            module = step.module
            own = [
                str(module.tile), f"{module.accesses.blocks:,}", mb(module.gma_bytes), mb(module.dram_bytes),
                _percent(module.redundant) if step.fused else "", _us(module.time_us), self._note(step),
            ]  # fmt: skip
            for name, layer in zip(step.layers, step.unfused, strict=True):
                mark, (tile, blocks, gma, dram, redundant, us, note) = "" if own[0] else "└ ", own
                gma_alone, dram_alone, us_alone = mb(layer.gma_bytes), mb(layer.dram_bytes), _us(layer.time_us)
                kernel = "PyTorch" if self.network.traced and step.untimed else mark + NAMES[module.kind]
                rows.append([
                    name, summary(layer.layers[0]), kernel, tile, blocks, gma_alone, gma, dram_alone,
                    dram, redundant, us_alone, us, note,
                ])  # fmt: skip
                own = [""] * len(own)
        return rows

    def _note(self, step: Step) -> str:
        if not step.fused:
            return step.note
        size = f"{mb(step.module.between_bytes)} MB between"
        if not self.gpu.l2_bytes:
            return f"{size}, L2's size unknown"
        # Where it is true of all, the summary says so once.
        return f"{size}, would stay in L2" if step.in_l2 and not self._all_in_l2 else size

    @property
    def _all_in_l2(self) -> bool:
        return all(step.in_l2 for step in self.steps if step.fused)

    OF_DRAM = "DRAM MB: the part of it that goes to device memory. "
    TEXT = (0, 1, 2, 3, 12)  # columns of HEAD
    LEGEND = (
        f"MB: all that blocks read and write, by the model of accesses. {OF_DRAM}"
        "MAC: redundant multiply-adds. Tile: channels×rows×columns of a block's output."
    )

    def text(self, columns: int | None = None, *more: str) -> str:
        """The plan as text, its table with a row of totals; in lines of `columns` characters, None for any.

        more: sentences below the summary. Device memory has no columns where no kernel of the plan changes it.
        """
        totals = dict.fromkeys(self.HEAD, "") | {
            "layer": "all", "blocks": f"{sum(step.module.accesses.blocks for step in self.steps):,}",
            "MAC": _percent(self.redundant),
        }  # fmt: skip
        for name, what, form in (("MB", "gma_bytes", mb), ("DRAM MB", "dram_bytes", mb), ("µs", "time_us", _us)):
            totals |= {f"{name} unfused": form(self.total(what, unfused=True)), name: form(self.total(what))}
        same = all(sum(one.dram_bytes for one in step.unfused) == step.module.dram_bytes for step in self.steps)
        kept = [name for name in self.HEAD if not (same and name.startswith("DRAM"))]
        rows = [dict(zip(self.HEAD, row, strict=True)) for row in self.rows()] + [totals]
        text = terminal.table(
            kept, [[row[name] for name in kept] for row in rows],
            [kept.index(self.HEAD[place]) for place in self.TEXT], columns=columns, cut=kept.index("note"),
            spare=[kept.index(name) for name in self.SPARE if name in kept],
        )  # fmt: skip
        legend = self.LEGEND.replace(self.OF_DRAM, "") if same else self.LEGEND
        below = f"{legend} Ceilings: {self.gpu.ceilings.source}"
        sentences = [terminal.wrapped(one, columns) for one in (self.summary(), *more)]
        return "\n".join([*sentences, "", text, "", terminal.wrapped(below, columns)])

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return (
            f"<p>{html.escape(self.summary())}</p>{tabular.as_html(self.HEAD, self.rows(), left=self.TEXT)}"
            f"<p>{html.escape(self.LEGEND)} Ceilings: {html.escape(self.gpu.ceilings.source)}</p>"
        )


def _us(value: float | None) -> str:
    return "–" if number(value) is None else f"{value:,.1f}"


def _kernels(some: Sequence[Any]) -> str:
    return "1 kernel" if len(some) == 1 else f"{len(some)} kernels"


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
    for place, layer in enumerate(layers, 1):
        if not isinstance(layer, (DepthwiseConv2d, Pointwise)):
            raise PlanError(f"{layer!r} is no layer: a chain is made of DepthwiseConv2d and Pointwise")
        reads = networks.INPUT
        if made:
            one = made[-1].problem
            given = (one.N, one.channels_out, one.P, one.Q, one.layout, one.dtype, one.zero_y)
            if given == (layer.N, layer.C, layer.H, layer.W, layer.layout, layer.dtype, layer.zero_x):
                reads = str(place - 1)
        made.append(networks.Layer(str(place), "chain", layer, reads))
    if not made:
        raise PlanError("there is no layer: give at least one")
    first = layers[0]
    return Network("chain", tuple(made), first.N, first.layout, first.dtype, first.H)


def find(gpu: str | Machine) -> Machine:
    """The GPU to plan for, with ceilings: as `gpus.find` has it; "present" is the one in this machine.

    The present one has the ceilings of its record or datasheet; one that has neither is measured (a few seconds).
    Raises GpuError with the nearest name, and MachineError where no GPU is present.
    """
    if str(gpu).strip().lower() != "present":
        return gpus.find(gpu)
    here = machine.present()
    if recorded := machine.recorded().get(here.name):
        return gpus.find(replace(here, ceilings=recorded.ceilings))
    try:
        return gpus.find(here)
    except gpus.GpuError:
        return gpus.find(device.measure(here, quick=True))


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

    layers: a name in networks.NETWORKS, taken in dtype (float32), batch (1) and layout (NHWC); or a Network, or layers
    that follow each other, which have their own. gpu: as `find` takes it.

    Raises NetworkError and GpuError for unknown names, and PlanError, with the limit, for a layer that no tile fits.
    """
    rules = rules or Rules()
    given = {"dtype": dtype, "batch": batch, "layout": layout}
    given = {name: value for name, value in given.items() if value is not None}
    if isinstance(layers, str):
        made = networks.network(layers, **{"layout": "NHWC"} | given)
    elif given:
        raise PlanError(f"the layers have their own {', '.join(given)}: leave it out, or give a network's name")
    else:
        made = layers if isinstance(layers, Network) else chain(layers)
    gpu = find(gpu)
    alone = {(layer.name,): _alone(layer, gpu, rules) for layer in made.layers if layer.planned}
    names = [layer.name for layer in made.layers]
    fused = {(names[n], names[n + 1]): _fused(pair, gpu, rules) for n, pair in made.pairs.items()}
    kernels = alone | {two: module for two, (module, _) in fused.items() if module is not None}
    why = {piece: unknown(*one.layers, gpu, rules) for piece, one in alone.items()}
    untimed = {piece: 1e9 for piece, text in why.items() if text and rules.objective == "time"}  # the last choice
    costs = {piece: rules.cost(module) + untimed.get(piece, 0.0) for piece, module in kernels.items()}
    pieces = cheapest(made, costs)
    shown = {piece: replace(one, time_us=math.nan) if why[piece] else one for piece, one in alone.items()}
    pairs = {}
    for two, (module, limit) in fused.items():
        fuse = module is not None and costs[two] < sum(costs[name,] for name in two)
        pairs[two] = Pair(two, module, tuple(shown[name,] for name in two), two in pieces, limit, fuse)
    steps = []
    for piece in pieces:
        unfused = tuple(shown[name,] for name in piece)
        note = (why[piece] or _why(made, names.index(piece[0]), pairs, pieces)) if len(piece) == 1 else ""
        inside = len(piece) > 1 and all(stays(one.layers, gpu.l2_bytes or 0) for one in unfused)
        steps.append(Step(piece, (kernels | shown)[piece], unfused, inside, note))
    return Plan(made, gpu, rules, tuple(steps), tuple(pairs.values()))


def cheapest(network: Network, costs: Mapping[tuple[str, ...], float]) -> tuple[tuple[str, ...], ...]:
    """The cheapest way to cut a network's layers into kernels: the names of each kernel's planned layers.

    costs: names of a kernel's layers -> its cost. Raises PlanError where a layer has no cost.
    """
    place = {layer.name: n for n, layer in enumerate(network.layers)}
    pieces = {(n, n + 1): 0.0 for n, layer in enumerate(network.layers) if not layer.planned}
    pieces |= {(place[names[0]], place[names[-1]] + 1): cost for names, cost in costs.items()}
    cuts = partition(len(network.layers), pieces)
    return tuple(tuple(one.name for one in network.layers[a:b]) for a, b in cuts if network.layers[a].planned)


def _alone(layer: networks.Layer, gpu: Machine, rules: Rules) -> Module:
    """A layer as a kernel of its own."""
    found = best(*pattern([layer.problem]), (layer.problem,), gpu, rules)
    if isinstance(found, str):
        raise PlanError(f"no tile fits {layer}. {found[0].upper() + found[1:]}")
    return found


def _fused(pair: Fused, gpu: Machine, rules: Rules) -> tuple[Module | None, str]:
    """The best module of two layers; or None, and which limit is in the way."""
    layers = pair.first, pair.second
    kinds = [kind for kind in rules.modules if KINDS[kind].takes == pattern(layers)]
    if kinds and (why := unknown(pair, gpu, rules)):
        return None, f"in one kernel {why}"
    found = {kind: best(kind, layers, gpu, rules) for kind in kinds}
    modules = [one for one in found.values() if isinstance(one, Module)]
    if modules:
        return min(modules, key=lambda one: (rules.cost(one), one.gma_bytes)), ""
    limits = "; ".join(f"{NAMES[kind]}: {limit}" for kind, limit in found.items())
    return None, limits or "no module of the two is allowed"


def _why(made: Network, place: int, pairs: Mapping[tuple[str, str], Pair], pieces: Sequence[tuple[str, ...]]) -> str:
    """The reason, in a few words, that a layer is not fused with the next."""
    if place + 1 >= len(made.layers) or not made.layers[place + 1].planned:
        return ""
    first, second = (layer.name for layer in made.layers[place : place + 2])
    pair = pairs.get((first, second))
    if pair is None:
        return made.joint(place)
    if pair.module is None:
        return pair.limit
    if (second,) not in pieces:
        return "the next is better fused with the one after it"
    time = "" if math.isnan(pair.gain_us) else f"{-pair.gain_us:+.1f} µs, "
    return f"{NAMES[pair.module.kind]} with the next: {time}{-pair.saved_bytes / 1e6:+.2f} MB"
