"""Time model: how long a stage should take, from its counts and a GPU's ceilings, without a clock.

`predict("depthwise1d/forward/naive", "paper", "t4")` gives the time that each resource alone would need, and so the
bottleneck. Nothing in it depends on a stage's name.

**Counts** (dwlab.simt.cost) are made on a cut-down problem and scaled up, as rows are alike. Requests and sectors scale
by the stage's traffic formula. Passes, instructions and waits scale with the number of blocks; where that does not grow
with the problem, as each block loops over a part of it, they scale with the part, and a block's fixed work counts once.

**Resources**, each with its time in µs:
- dram: the sectors that must come from or go to device memory, over the copy bandwidth. Each array once; and again
  what another block reads after more than the L2 holds was read in between (reuse distance).
- l2: sectors that blocks fetch (each once per block: the L1 keeps what a block has read), atomics, and stores, which
  are written through, over the L2's bandwidth. A store request counts each 128-byte line that it touches in full: an
  assumption, which agrees with the naive stages with few taps.
- l1: wavefronts of L1 and shared memory, one per clock and multiprocessor, or as many as were measured
  (Ceilings.shared_gbps); a global request takes at least a clock per LINES_PER_CLOCK 128-byte lines.
- issue: instructions, 4 warps per clock and multiprocessor (2 on 6.0). fp32: multiply-adds at their measured rate, or
  the expected one. fp64: its units.
- atomics: lanes of a request that add to the same address are served one by one, ATOMIC_CYCLES clocks each. One
  measurement cannot say whether in the multiprocessor or the L2; for other shapes and GPUs the constant is a guess.
- latency: a warp's waits and instructions in series, over the resident warps. Resident blocks that read the same
  sectors wait for device memory together.
- launch: the host's time for a launch, and for those that zero an output or add up parts; it overlaps with the kernels
  before.

**Time**: resources overlap in part. Their sum denies any overlap, the largest alone claims a perfect one; in between is
(Σ tᵖ)^(1/p), with one p for all. Two groups count as one each, by their slowest: dram and l2, as a copy's sectors pass
through both while its bandwidth is measured; issue, fp32 and fp64, as a multiply-add that is issued is computed.

**Constants**: OVERLAP, LINES_PER_CLOCK, STEP_CYCLES and DRAM_NS are fitted, on a grid, to forward stages 1 to 4 at nine
shapes on an H200. ATOMIC_CYCLES is from one time, that of backward/naive, which is therefore no prediction. The
instructions per statement were read from compiled code (ADDRESS, RANGE, PREDICATED in dwlab.simt.cost). The rules above
were found by looking at recorded times, so those records are no independent test. A test refits the first four
constants without each stage in turn and predicts that stage; it names the stages that are missed by more than a third.
The errors now: `python -m dwlab predict --compare`.
"""

from __future__ import annotations

import functools
import html
import json
import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dwlab import problems, records
from dwlab.gpu import occupancy
from dwlab.gpu import specs as gpus
from dwlab.gpu.machine import Ceilings, Machine
from dwlab.kernels import registry
from dwlab.kernels.command import whole_id
from dwlab.kernels.registry import MAX_SHARED, Launch, Stage
from dwlab.kernels.traffic import SECTOR_BYTES, WARP
from dwlab.problems import DepthwiseConv1d
from dwlab.text import commandline, tabular, terminal

if TYPE_CHECKING:
    from dwlab.simt.cost import Cost

OVERLAP = 2.5
"""p of the smooth maximum: how well the resources work at the same time. Fitted."""

LINES_PER_CLOCK = 2.5
"""128-byte lines of a global request that an L1 looks up in a clock. Fitted."""

STEP_CYCLES = 2.0
"""Clocks from one instruction of a warp to its next: 4 where each needs the one before, 1 where none does. Fitted."""

DRAM_NS = 600.0
"""Latency of a sector of device memory under load. Fitted."""

ATOMIC_CYCLES = 9.1
"""Clocks of a multiprocessor for each further lane of a request that adds to the address of another lane. From one
time, that of backward/naive: this stage is therefore no test of it."""

L2_CYCLES = 200
"""The same for a sector in the L2: doi 10.1016/j.ultsonch.2023.106546, table 3, for V100, A100 and H100."""

L1_CYCLES = 30
"""The same for a sector in the L1. An assumption: shared memory takes 20 (as above), the L1 has tags to compare too."""

BASE_REGISTERS = 32
"""Registers of a thread besides its local arrays, which are in registers too: the compiled ones have 24 to 32."""

LINE_BYTES = 128

CUT_ROWS = (128, 1024)
CUT_PRODUCTS = 2 << 20
CUT_LENGTH = 576
CUT_PERIOD = 192
"""A cut-down problem has so many rows, fewer where they have many products. Longer rows are cut at a length that leaves
the same remainder modulo the period, which all tiles (32, 48, 64), sectors and banks divide."""

FEW = 10

FIELDS = ("dram", "l2", "l1", "issue", "fp32", "fp64", "atomics", "latency", "launch")


class TimeModelError(ValueError):
    """A prediction that cannot be made; the message says why and what can be."""


# ------------------------------------------------------------------------------------------------------------- counts


@dataclass(frozen=True)
class Fetch:
    """One array's sectors, as blocks fetch them from the L2: each once a block.

    distinct: of all. again: those that another block had fetched before, `gap` blocks earlier on average.
    """

    fetched: float
    distinct: float
    again: float = 0.0
    gap: float = 0.0

    def at_once(self, resident: int) -> float:
        """Fetches that wait for device memory if it is read once: the first, and those of concurrent blocks."""
        sharers = max(1.0, resident / self.gap) if self.gap else 1.0
        return min(self.fetched, self.distinct * sharers)


@dataclass(frozen=True)
class Counts:
    """Counts of a launch, for the whole problem: warps' passes, instructions and waits, and 32-byte sectors.

    chain: waits of the warp that waits most over the mean. asynchronous: copies that need compute capability 8.0.
    launches: with those that zero an output or add up parts; workspace_bytes: of the parts, written once and read once.
    """

    blocks: int
    threads: int
    shared_bytes: int
    local_words: int
    instructions: float
    instructions32: float
    instructions64: float
    global_passes: float
    global_lines: float
    store_passes: float
    shared_passes: float
    waits: float
    misses: float
    chain: float
    through_bytes: float
    compulsory_bytes: int
    arrays: tuple[Fetch, ...] = ()
    atomic_repeats: float = 0.0
    asynchronous: bool = False
    launches: int = 1
    workspace_bytes: int = 0

    @property
    def warps(self) -> int:
        """Warps of the launch."""
        return self.blocks * -(-self.threads // WARP)

    @property
    def fetched_sectors(self) -> float:
        """Sectors that leave the L2 for loads."""
        return sum(one.fetched for one in self.arrays)


def cut_down(problem: DepthwiseConv1d) -> DepthwiseConv1d:
    """A problem whose rows are like this one's, and few enough to be interpreted in a second.

    K and padding stay. Channels are fewer by a multiple of a warp's lanes, and at least so many as a warp has lanes:
    then a batch entry's rows begin at the same bank and place in a line, and warps that run over channels are full.
    """
    channels = min(problem.H, WARP + problem.H % WARP)
    length = problem.L if problem.L <= CUT_LENGTH else 2 * CUT_PERIOD + problem.L % CUT_PERIOD
    rows = min(max(CUT_ROWS[0], CUT_PRODUCTS // (length * problem.K)), CUT_ROWS[1])
    return replace(problem, B=min(problem.B, max(8, rows // channels // 8 * 8)), H=channels, L=length)


def count(stage: Stage, problem: DepthwiseConv1d, only: int = 0) -> tuple[Cost, Launch]:
    """A stage's cost on a problem, interpreted (`only` so many blocks; 0: all), and its launch.

    Raises what the interpreter raises.
    """
    from dwlab.simt.cost import cost  # the interpreter and Numba, which a plan does without

    how, args = stage.launch(problem), stage.example(problem)
    return cost(stage.kernel_for(problem), how.grid, how.block, *args, shared_bytes=how.shared_bytes, only=only), how


@functools.lru_cache(512)
def counts(stage: Stage, problem: DepthwiseConv1d) -> Counts:
    """A stage's counts on a problem of any size, scaled up from those on `cut_down(problem)`. About a second."""
    few = cut_down(problem)
    found, _ = count(stage, few)
    return scaled(stage, few, problem, found)


WORK = ("instructions", "instructions32", "instructions64", "shared_passes", "waits", "misses")
"""Counts that no formula gives."""

ELEMENTS = 64  # of a thread, at least, in the smaller of two batches whose blocks have all of a channel
SAMPLE = 4  # blocks, where a problem has more products than
SAMPLE_FROM = 1 << 25
SAMPLE_BYTES = 1 << 28  # of the arrays of a problem of which a few blocks are run


def walked(
    stage: Stage,
    few: DepthwiseConv1d,
    problem: DepthwiseConv1d,
    found: Cost | None = None,
    *,
    least: int = 0,
    blocks: int = 0,
) -> dict[str, float] | None:
    """WORK on `problem` for a stage whose blocks loop over parts of the batch; None if its blocks do not.

    A block's work is a fixed part and one in proportion to its part of the batch. Both come from some blocks of two
    batches: with equally many blocks, and parts twice and four times as large as the least. found: the cost on `few`,
    if it is known: where `few` is the first of the two, it is not interpreted again. least: elements of a channel in
    the smaller batch. blocks: of the problem's launch, if `stage` has another.
    """
    low, high = 1, problem.B
    while low < high:  # the least batch of which a larger one has no more blocks
        middle = (low + high) // 2
        settled = stage.launch(replace(few, B=middle)).blocks == stage.launch(replace(few, B=2 * middle)).blocks
        low, high = (low, middle) if settled else (middle + 1, high)
    batch = max(8, 2 * low, -(-least // few.L))
    one, two = replace(few, B=batch), replace(few, B=2 * batch)
    if two.B > problem.B or two.compulsory_bytes(stage.path) > SAMPLE_BYTES:
        return None
    blocks, made = stage.launch(one).blocks, blocks or stage.launch(problem).blocks
    only = SAMPLE if two.flops_dense // 2 > SAMPLE_FROM else 0
    first = found if found is not None and one == few else count(stage, one, only)[0]
    second = count(stage, two, only)[0]
    part = [p.B * p.H * p.L / blocks for p in (one, two)]
    wanted = problem.B * problem.H * problem.L / made
    work = {}
    for name in WORK:
        low, high = (getattr(one, name) / one.blocks for one in (first, second))
        work[name] = made * max(0.0, low + (high - low) * (wanted - part[0]) / (part[1] - part[0]))
    return work


def scaled(stage: Stage, few: DepthwiseConv1d, problem: DepthwiseConv1d, found: Cost) -> Counts:
    """Counts on `few`, as they are on `problem`."""
    how, how_few = stage.launch(problem), stage.launch(few)
    traffic, traffic_few = stage.traffic(problem), stage.traffic(few)
    elements = problem.B * problem.H * problem.L / (few.B * few.H * few.L)
    blocks, longer = how.blocks / how_few.blocks, problem.L / few.L
    # Blocks are alike where their number grows as the problem does, with its rows if each takes whole rows.
    alike = [ratio for ratio in (blocks, blocks * longer) if 0.8 < ratio / elements < 1.25]
    ratio = min(alike, key=lambda one: abs(math.log(one / elements)), default=elements)
    if how.block != how_few.block and how.grid == (problem.H * how.parts,):
        # Blocks that share a channel, and of another size than on `few`: one of the problem's for each channel of few.
        size = replace(how, parts=1, shared_bytes=MAX_SHARED)  # rows of another length may need more
        alone = replace(stage, launch=lambda few: replace(size, grid=(few.H,)))
        work = walked(alone, few, problem, least=ELEMENTS * how.threads, blocks=how.blocks)
    else:
        work = None if alike or problem == few else walked(stage, few, problem, found)
    if work is None:
        work = {name: (1.0 if problem == few else ratio) * getattr(found, name) for name in WORK}

    def as_formula(kind: str) -> float:
        least = getattr(traffic_few, f"{kind}_requests")
        return getattr(traffic, f"{kind}_requests") / least if least else 0.0

    loads, stores, atomics = as_formula("load"), as_formula("store"), as_formula("atomic")
    repeats = atomics * found.atomic_repeats
    farther = max(1.0, blocks / longer)  # blocks between two that read the same sectors, over the cut-down problem's
    nbytes, named = problem.nbytes(stage.path), stage.kernel_for(few).py_func.__code__.co_varnames
    sizes = {name: nbytes.get(slot, 0) for name, slot in zip(named, problem.slots(stage.path), strict=False)}
    arrays = []
    for name, one in found.reuse.items():
        distinct, again = sizes.get(name, 0) / SECTOR_BYTES, elements * one.again
        # The blocks that fetch a sector one after the other are at most as far from each other as all blocks allow.
        gap = farther * one.gap
        if again and distinct:
            gap = min(gap, how.blocks * distinct / again)
        arrays.append(Fetch(elements * one.fetched, distinct, again, gap))
    return Counts(
        blocks=how.blocks,
        threads=how.threads,
        shared_bytes=found.shared_bytes + how.shared_bytes - how_few.shared_bytes,
        local_words=found.local_words,
        **work,
        global_passes=loads * found.load_passes + atomics * found.atomic_passes,
        global_lines=loads * found.load_lines + atomics * found.atomic_lines,
        store_passes=stores * found.store_passes,
        chain=found.most_waits * found.warps / found.waits if found.waits else 1.0,
        through_bytes=LINE_BYTES * stores * found.store_lines + SECTOR_BYTES * (traffic.atomic_sectors + repeats),
        compulsory_bytes=problem.compulsory_bytes(stage.path),
        arrays=tuple(arrays),
        atomic_repeats=repeats,
        asynchronous=found.asynchronous,
        launches=1 + bool(how.zero) + (how.parts > 1),
        workspace_bytes=4 * math.prod(stage.workspace_shape(problem)) if how.parts > 1 else 0,
    )


# --------------------------------------------------------------------------------------------------------- prediction


@dataclass(frozen=True)
class Prediction:
    """A stage's time on a problem and GPU, µs. resources: what each alone would need, in the order of FIELDS.

    residents: blocks on a multiprocessor at the same time. source: where the ceilings come from.
    """

    stage: str
    problem: DepthwiseConv1d
    gpu: str
    total_us: float
    resources: Mapping[str, float]
    bound: str
    residents: int
    source: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"resources": dict(self.resources), "problem": asdict(self.problem)}

    def __str__(self) -> str:
        lines = [f"{self.stage} on {self.problem}, {self.gpu}: {_us(self.total_us)} µs, predicted"]
        for name, us in self.resources.items():
            if us:
                mark = "  <- binds" if name == self.bound else ""
                lines.append(f"  {name:8}{_us(us):>12} µs  {100 * us / self.total_us:4.0f} %{mark}")
        lines.append(
            "  %: of the time. What each resource would need alone; they work at the same time, but hinder each"
        )
        lines.append("  other: the time is at least the longest, at most the sum.")
        lines.append(f"  {self.residents} blocks on a multiprocessor at a time. Ceilings: {self.source}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [
            (f"{name}{' (binds)' if name == self.bound else ''}", _us(us), f"{100 * us / self.total_us:.0f} %")
            for name, us in self.resources.items()
            if us
        ]
        caption = f"{self.stage} on {self.problem}, {self.gpu}: {_us(self.total_us)} µs, predicted"
        table = tabular.as_html(("resource", "µs", "of the time"), rows, caption)
        return f"{table}<p>{html.escape(f'Ceilings: {self.source}')}</p>"


def predict(
    stage: Stage | str,
    problem: DepthwiseConv1d | str = "paper",
    gpu: str | Machine | Ceilings = "h200",
    *,
    cold: bool = True,
) -> Prediction:
    """The time that a stage should take. About a second for the counts, once for each stage and problem.

    gpu: as gpus.find takes it. cold: the inputs are not in the L2; where all arrays fit into it and cold is False, no
    time goes to device memory. Raises StageError, ProblemError, GpuError for unknown names, and TimeModelError where
    the GPU cannot run the stage.
    """
    chosen = registry.stage(stage) if isinstance(stage, str) else stage
    problem = problems.problem(problem)
    if chosen.op != "depthwise1d":
        raise TimeModelError(f"{chosen.id}: times are predicted for stages of depthwise1d; of layers see dwlab plan")
    gpu = gpus.find(gpu)
    return of_counts(chosen.id, problem, counts(chosen, problem), gpu, cold=cold)


def of_counts(name: str, problem: DepthwiseConv1d, made: Counts, gpu: Machine, *, cold: bool = True) -> Prediction:
    """The prediction from counts; pure. gpu: with ceilings. Raises TimeModelError where the GPU cannot run it."""
    residents = _residents(name, made, gpu)
    resources = times(made, gpu, residents, cold=cold)
    bound = max(resources, key=lambda one: resources[one])
    return Prediction(name, problem, gpu.name, together(resources), resources, bound, residents, gpu.ceilings.source)


def together(resources: Mapping[str, float], overlap: float | None = None) -> float:
    """The time that resources need together, µs.

    Two pairs are one leg each, of which the slower counts: what comes from device memory passes through the L2, as
    it did when a copy's speed was measured; and a multiply-add that is being issued is being computed.
    """
    left = dict(resources)
    memory = max(left.pop("dram"), left.pop("l2"))
    return smooth([memory, max(left.pop("issue"), left.pop("fp32"), left.pop("fp64")), *left.values()], overlap)


def smooth(us: Iterable[float], overlap: float | None = None) -> float:
    """(Σ tᵖ)^(1/p): at least the largest of the times, at most their sum."""
    values = list(us)
    largest = max(values, default=0.0)
    if largest <= 0:
        return 0.0
    p = OVERLAP if overlap is None else overlap
    return largest * sum((one / largest) ** p for one in values) ** (1 / p)


def _residents(name: str, made: Counts, gpu: Machine) -> int:
    """Blocks on a multiprocessor at the same time. Raises TimeModelError if there can be none."""
    cc = "{}.{}".format(*gpu.compute_capability)
    if made.asynchronous and gpu.compute_capability < (8, 0):
        raise TimeModelError(
            f"{name} copies past the registers (cp.async), which needs compute capability 8.0; {gpu.name} has {cc}: "
            "choose an earlier stage, or a GPU from 8.0 on"
        )
    needed = min(255, BASE_REGISTERS + made.local_words)
    fits = occupancy.occupancy(made.threads, needed, made.shared_bytes, gpu.compute_capability)
    if fits.blocks_per_sm == 0:
        why = " ".join(fits.exceeded) or f"not one of its blocks fits on a multiprocessor ({needed} registers a thread)"
        raise TimeModelError(f"{name} does not run on {gpu.name}: {why}")
    return fits.blocks_per_sm


def times(
    made: Counts,
    gpu: Machine,
    residents: int,
    *,
    cold: bool = True,
    lines_per_clock: float | None = None,
    step_cycles: float | None = None,
    dram_ns: float | None = None,
) -> dict[str, float]:
    """Resource -> µs that it alone would need. The last three: in place of the module's constants."""
    ceilings = gpu.ceilings
    mhz = gpus.boost_mhz(gpu)
    busy = min(gpu.sms, made.blocks)  # multiprocessors that have a block

    def clocks(amount: float, each_clock: float = 1.0) -> float:
        return amount / (busy * each_clock * mhz)

    l2_bytes = gpu.l2_bytes or 0
    each = SECTOR_BYTES * made.fetched_sectors / made.blocks  # bytes that a block fetches
    far = sum(one.again for one in made.arrays if one.gap * each > l2_bytes)
    memory = made.compulsory_bytes + SECTOR_BYTES * far
    if made.workspace_bytes > l2_bytes:
        memory += 2 * made.workspace_bytes
    if not cold and made.compulsory_bytes <= l2_bytes:
        memory = 0
    requests = max(made.global_passes, made.global_lines / (lines_per_clock or LINES_PER_CLOCK)) + made.store_passes
    fp32, fp64 = gpus.lanes(gpu.compute_capability)
    fma = ceilings.fma_tflops * 1e6 / gpu.sms / mhz / 2 if ceilings.fma_tflops else fp32  # a clock and multiprocessor
    issue = 2 if gpu.compute_capability == (6, 0) else 4

    # More than a pass a clock the banks cannot do: a higher ceiling was measured wrongly.
    wavefronts = min(1.0, ceilings.shared_gbps * 1e3 / LINE_BYTES / gpu.sms / mhz) if ceilings.shared_gbps else 1.0

    running = min(residents * gpu.sms, made.blocks)
    waited = far + sum(one.at_once(running) for one in made.arrays) if memory else 0.0
    from_memory = min(1.0, waited / made.fetched_sectors) if made.fetched_sectors else 0.0
    beyond = L2_CYCLES + from_memory * max(0.0, (dram_ns or DRAM_NS) * mhz / 1e3 - L2_CYCLES)
    life = (made.waits - made.misses) * L1_CYCLES + made.misses * beyond
    life += made.instructions * (step_cycles or STEP_CYCLES)
    warps = running * -(-made.threads // WARP)
    # With fewer blocks than there is room for, all begin at once, and the longest warp is the launch's time.
    longest = made.chain if made.blocks <= residents * gpu.sms else 1.0
    return {
        "dram": memory / ceilings.copy_gbps / 1e3,
        "l2": (SECTOR_BYTES * made.fetched_sectors + made.through_bytes + made.workspace_bytes) / ceilings.l2_gbps / 1e3
        if ceilings.l2_gbps
        else 0.0,
        "l1": clocks(requests + made.shared_passes, wavefronts),
        "issue": clocks(made.instructions, issue),
        "fp32": clocks(made.instructions32, fma / WARP),
        "fp64": clocks(made.instructions64, fp64 / WARP),
        "atomics": clocks(made.atomic_repeats, 1 / ATOMIC_CYCLES),
        "latency": longest * life / warps / mhz,
        "launch": made.launches * (ceilings.launch_us or 0.0),
    }


# --------------------------------------------------------------------------------------------- predicted and measured


@dataclass(frozen=True)
class Row:
    """One measurement and its prediction."""

    stage: str
    problem: DepthwiseConv1d
    gpu: str
    measured_us: float
    prediction: Prediction

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.prediction.total_us / self.measured_us - 1


@dataclass(frozen=True)
class Comparison:
    """Predictions and measurements. left_out: what could not be predicted, and why."""

    rows: tuple[Row, ...]
    left_out: tuple[str, ...] = ()

    @property
    def rank_correlation(self) -> float:
        """Spearman's, between predicted and measured times. Raises TimeModelError for fewer than two rows."""
        return spearman([row.prediction.total_us for row in self.rows], [row.measured_us for row in self.rows])

    @property
    def median_error(self) -> float:
        """The median of the errors' sizes."""
        if not self.rows:
            raise TimeModelError("nothing is compared: no measurement was recorded that can be predicted")
        return float(np.median([abs(row.error) for row in self.rows]))

    def summary(self) -> str:
        """One sentence. Of fewer than ten rows no rank correlation is given: it would say little."""
        if not self.rows:
            return "Nothing was compared."
        error = f"median error {100 * self.median_error:.0f} %"
        if len(self.rows) < FEW:
            return f"{len(self.rows)} compared: {error}; too few for a rank correlation."
        return f"{len(self.rows)} compared: rank correlation {self.rank_correlation:.3f}, {error}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rows = [row.prediction.to_dict() | {"measured_us": row.measured_us, "error": row.error} for row in self.rows]
        return {
            "rank_correlation": self.rank_correlation if len(self.rows) > 1 else None,
            "median_error": self.median_error if self.rows else None,
            "rows": rows,
            "left_out": list(self.left_out),
        }

    def cells(self) -> list[list[str]]:
        """The table's rows as text."""
        return [
            [
                row.stage.removeprefix("depthwise1d/"),
                records.shape_text(row.problem) + ("" if row.problem.dtype == "float32" else f" {row.problem.dtype}"),
                _us(row.measured_us),
                _us(row.prediction.total_us),
                f"{100 * row.error:+.0f} %",
                row.prediction.bound,
            ]
            for row in self.rows
        ]

    HEAD = ("stage", "problem", "measured µs", "predicted µs", "error", "bound by")

    def __str__(self) -> str:
        return "\n".join([tabular.columns(self.HEAD, self.cells(), left=(0, 1, 5)), "", self.summary(), *self.left_out])

    def _repr_html_(self) -> str:
        return f"{tabular.as_html(self.HEAD, self.cells())}<p>{html.escape(self.summary())}</p>"


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Rank correlation; equal values share the mean of their ranks. Raises TimeModelError for fewer than two pairs."""
    if len(first) != len(second) or len(first) < 2:
        raise TimeModelError(f"a rank correlation needs two pairs at least, not {len(first)} and {len(second)} values")

    def ranks(values: Sequence[float]) -> np.ndarray:
        values = np.asarray(values, float)
        return (values[:, None] > values).sum(axis=1) + ((values[:, None] == values).sum(axis=1) - 1) / 2

    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    if size == 0:
        raise TimeModelError("a rank correlation needs values that differ")
    return float(a @ b) / size


def compare(
    runs: Sequence[records.Record] | None = None,
    *,
    keep: Callable[[records.Measurement], bool] = lambda row: True,
) -> Comparison:
    """Every recorded measurement that `keep` accepts, and its prediction; the newest of each stage, problem, GPU.

    runs: all records if None. Rows of an earlier kernel are left out. Predicted for the GPU that it was measured on,
    with that run's ceilings. Stages of depthwise1d: what the model says of tensor cores and of layers has been compared
    with nothing yet.
    """
    rows: dict[tuple, Row] = {}
    left_out: dict[str, None] = {}
    earlier: dict[tuple, str] = {}
    for run in records.load_runs() if runs is None else runs:
        for one in run.measurements:
            if one.op != "depthwise1d" or not keep(one):
                continue
            try:
                problem = _problem(one)
                stage = registry.stage(one.id)
                if one.kernel_sha256 and not stage.same_kernel(one.kernel_sha256, one.problem, one.dtype):
                    earlier[one.id, problem, run.gpu] = f"left out: {one.id} of an earlier kernel"
                    continue
                prediction = predict(one.id, problem, gpus.find(run.gpu, [run]), cold=not one.cold.startswith("warm"))
            except (registry.StageError, problems.ProblemError, gpus.GpuError, TimeModelError) as error:
                left_out[f"left out: {error}"] = None
                continue
            rows[one.id, problem, run.gpu] = Row(one.id, problem, run.gpu, one.time_us, prediction)
    left_out |= {note: None for key, note in earlier.items() if key not in rows}
    return Comparison(tuple(rows.values()), tuple(left_out))


def _problem(row: records.Measurement) -> DepthwiseConv1d:
    """A measurement's problem. Raises ProblemError for one that is none."""
    try:
        return DepthwiseConv1d(**row.problem, dtype=row.dtype)
    except TypeError as error:  # a field too many or too few
        raise problems.ProblemError(f"{row.id}: {dict(row.problem)} is no problem: {error}") from None


def _us(value: float) -> str:
    digits = max(0, 3 - math.floor(math.log10(value))) if value > 0 else 0
    return f"{value:,.{min(digits, 4)}f}"


# ------------------------------------------------------------------------------------------------------------ command


def _gpus_text() -> str:
    """`gpus.table` for a terminal: where ceilings come from in a word, and below what the words stand for."""
    head, _, *rows = [[cell.strip() for cell in one.strip("| ").split(" | ")] for one in gpus.table().splitlines()]
    found = gpus.efficiency()
    for row in rows:
        row[-1] = "expected" if row[-1].startswith(gpus.EXPECTED) else row[-1].partition(" ")[0]
    text = terminal.table(head, rows, (0, 1, 2, len(head) - 1), columns=terminal.width(), cut=1, spare=(8, 4, 9, 7, 3))
    note = "measured: in a record; datasheet: not measured."
    if found:
        note += (
            f" expected, not measured: the datasheet's, lowered to the efficiency of {found.source}, "
            f"{100 * found.copy:.0f} % of the copy and {100 * found.fma:.0f} % of the FMA peak."
        )
    return f"{text}\n\n{terminal.wrapped(note, terminal.width())}"


def register(command: commandline.Register) -> None:
    """Adds `predict`."""
    add = command("predict", main, "examples: python -m dwlab predict forward/coalesced --gpu t4\n"
                  "          python -m dwlab predict --compare").add_argument  # fmt: skip
    add("stage", metavar="OP/PATH/STAGE", nargs="?", help=f"of depthwise1d, {commandline.STAGE}")
    add("--problem", default="paper", metavar="P", help="a name, or B,H,L,K[,PADDING] (default: paper)")
    add("--gpu", default="h200", metavar="NAME", help="such as t4, a100, rtx4090 (default: h200)")
    add("--compare", action="store_true", help="recorded times and predicted ones")
    add("--gpus", action="store_true", help="the GPUs that there are, and their ceilings")


def main(options: Namespace) -> int:
    """Predicts the time of a stage of depthwise1d from its counts and a GPU's ceilings, measured where
    a record has them, with the time that each resource alone would need. Nothing is timed. Layers of
    image networks: `plan`.
    """
    if options.gpus:
        print(json.dumps([gpus.find(name).to_dict() | {"short": name} | asdict(gpus.find(name).ceilings)
                          for name in gpus.NAMES], indent=1) if options.json else _gpus_text())  # fmt: skip
        return 0
    if options.compare:
        with terminal.progress(sum(one.op == "depthwise1d" for one in records.load_all())) as progress:
            made: Prediction | Comparison = compare(keep=lambda row: progress(row.id) is None)
    elif options.stage is None:
        raise TimeModelError("which stage? Give OP/PATH/STAGE (`python -m dwlab stages` lists them), or --compare")
    else:
        made = predict(whole_id(options.stage), options.problem, options.gpu)
    print(json.dumps(made.to_dict(), indent=1, ensure_ascii=False) if options.json else made)
    return 0
