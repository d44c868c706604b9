"""``python -m dwlab study``: every stage checked, its traffic predicted and counted, and on a GPU timed.

Check, time, check again on fresh inputs. Effective bandwidth counts a problem's compulsory bytes, so a stage that moves
more never looks faster. The ceilings are measured in the same run as the stages. Without a GPU the columns of time hold
what was recorded, labelled, or nothing. A stage fails if the judge rejects it, if an exact traffic formula differs from
the count, if its output at the measured shape is wrong, or if its point lies above a ceiling.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dwlab import counters, peers, problems, records, references, report, roofline, stages, timing
from dwlab import machine as machines
from dwlab.counters import Counters, CountersError
from dwlab.machine import Ceilings, Machine
from dwlab.peers import Peer
from dwlab.problems import DepthwiseConv1d
from dwlab.records import Markdown, Measurement
from dwlab.stages import Stage
from dwlab.timing import Timing

PROBLEM = problems.PAPER
QUICK_PROBLEM = replace(problems.PAPER, B=1024)
COUNTED_OUTPUTS = 4096  # outputs of the problem that the interpreter counts, at most
COUNTED_TAPS = 4096  # taps of it, at most
TIMING = {"rounds": 15, "min_seconds": 0.2, "most_seconds": 1.5}
QUICK_TIMING = {"rounds": 5, "min_seconds": 0.05, "most_seconds": 0.5}
MOVED_ON = 2**26  # bytes of a problem from which fresh inputs are the last ones moved on
MOST_PRODUCTS = 2**30  # L*K of a problem: the formulas look at each warp and tap of a row


class StudyError(RuntimeError):
    """A study that cannot be made as asked; the message says what to do."""


class OutOfMemory(StudyError):
    """The GPU's memory is too small for the problem; the message says how much is needed and what would fit."""


class WrongResult(RuntimeError):
    """A kernel whose output at the measured shape is wrong."""


@dataclass(frozen=True)
class Row:
    """One stage on one problem.

    passed: judged right, counted as predicted, right at the measured shape and under its ceilings; verdict: why not.
    flops: of the taps inside the signal. intensity: flops / compulsory bytes. predicted_bytes: 32 bytes for each
    sector that the stage's formula predicts its warps ask for; intensity_asked: flops / predicted_bytes.
    counted_bytes and counted_prediction: what the interpreter counted, and the formula said, on ``counted_problem``.
    measured: the timing with all that follows from it, from this run or from a record; source says which ("": none).
    """

    op: str
    path: str
    order: int
    stage: str
    problem: dict[str, Any]
    dtype: str
    passed: bool
    verdict: str
    flops: int
    compulsory_bytes: int
    intensity: float
    predicted_bytes: int
    intensity_asked: float
    counted_problem: dict[str, Any]
    counted_bytes: int
    counted_prediction: int
    measured: Measurement | None = None
    source: str = ""

    @property
    def id(self) -> str:
        """The stage's id, such as "depthwise1d/forward/naive"."""
        return f"{self.op}/{self.path}/{self.stage}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the measurement's own fields stand beside the row's, null where nothing was timed."""
        row = {k: v for k, v in asdict(self).items() if k != "measured"}
        keys = (
            "gpu", "date", "time_us", "p10_us", "p90_us", "rounds", "launches", "method", "cold", "note",
            "effective_gbps", "copy_gbps", "fraction_of_copy", "speedup_vs_naive", "peer", "peer_time_us",
            "speedup_vs_peer",
        )  # fmt: skip
        return row | {key: getattr(self.measured, key) if self.measured else None for key in keys}


@dataclass(frozen=True)
class Study:
    """A study's rows, with the machine that they were measured on (None if nothing was) and the peers tried.

    counters: the hardware's counters (dwlab.counters); uncounted: why there are none on a GPU.
    """

    mode: str
    rows: tuple[Row, ...]
    machine: Machine | None = None
    environment: dict[str, Any] | None = None
    peers: tuple[dict[str, Any], ...] = ()
    counters: tuple[dict[str, Any], ...] = ()
    uncounted: str = ""

    @property
    def passed(self) -> bool:
        """Whether every stage is right."""
        return all(row.passed for row in self.rows)

    def measurements(self) -> list[Measurement]:
        """What was measured in this run, of stages that are right."""
        return [row.measured for row in self.rows if row.measured and row.passed and row.source == "measured"]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "mode": self.mode,
            "passed": self.passed,
            "environment": self.environment,
            "machine": self.machine.to_dict() if self.machine else None,
            "ceilings": self.machine.ceilings.to_dict() if self.machine and self.machine.ceilings else None,
            "peers": list(self.peers),
            "counters": list(self.counters),
            "uncounted": self.uncounted,
            "rows": [row.to_dict() for row in self.rows],
        }

    def write(self, path: Any, **more: Any) -> Any:
        """Records what was measured as a new file; more: sections and notes for it. See dwlab.records.write.

        Raises StudyError if nothing was measured.
        """
        if self.environment is None or self.machine is None or self.machine.ceilings is None:
            raise StudyError("nothing was measured, so there is nothing to record: a record needs a GPU")
        return records.write(
            path,
            self.measurements(),
            self.environment,
            self.machine.ceilings.to_dict(),
            peers=self.peers,
            machine=self.machine.to_dict(),
            counters=self.counters,
            **more,
        )

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        head = ["stage", "check", "time µs", "eff. GB/s", "of copy", "× naive", "× peer", "FLOP/B"]
        head += ["FLOP/B asked", "predicted MB", "counted kB", "formula kB"]
        body = []
        for row in self.rows:
            m = row.measured
            body.append(
                [
                    row.stage,
                    "right" if row.passed else "WRONG",
                    records._round(m.time_us) if m else "",
                    records._round(m.effective_gbps) if m else "",
                    f"{100 * m.fraction_of_copy:.1f} %" if m else "",
                    records._times(m.speedup_vs_naive) if m else "",
                    records._times(m.speedup_vs_peer) if m else "",
                    f"{row.intensity:.3g}",
                    f"{row.intensity_asked:.3g}",
                    f"{row.predicted_bytes / 1e6:,.1f}",
                    f"{row.counted_bytes / 1e3:,.1f}",
                    f"{row.counted_prediction / 1e3:,.1f}",
                ]
            )
        return head, body

    def _groups(self) -> list[tuple[str, list[int]]]:
        """Rows of one path and problem belong to one table: (its title, the rows' indices)."""
        groups: dict[str, list[int]] = {}
        for i, row in enumerate(self.rows):
            title = f"{row.op}/{row.path}  {records.shape_text(row.problem)}  {row.dtype}"
            groups.setdefault(title, []).append(i)
        return list(groups.items())

    def notes(self, indices: Sequence[int] | None = None) -> list[str]:
        """What the numbers are: where they were measured, on which problem they were counted, and what failed."""
        rows = self.rows if indices is None else [self.rows[i] for i in indices]
        found = []
        counted = {records.shape_text(row.counted_problem) for row in rows}
        found.append(
            "FLOP/B: FLOP for each compulsory byte, and for each byte that the warps ask for. predicted: what they ask "
            "for, by the stage's formula. counted: by the interpreter, with the formula beside it, at "
            f"{', '.join(sorted(counted))}."
        )
        sources = {row.source for row in rows}
        if self.mode == "gpu" and self.machine and self.machine.ceilings:
            found.append(f"Measured on {self.machine.name}: {self.machine.ceilings.source}.")
        else:
            recorded = sorted(source for source in sources if source)
            if recorded:
                found.append(f"Nothing is timed in simulated mode. Times, GB/s and ratios are {', '.join(recorded)}.")
            if "" in sources:
                found.append("Nothing is timed in simulated mode; an empty cell has no record of this problem.")
        named = sorted({row.measured.peer for row in rows if row.measured and row.measured.peer})
        if named:
            found.append(f"peer: {', '.join(named)}.")
        found += [f"{row.id}: {row.verdict}" for row in rows if not row.passed]
        return found

    def table(self) -> str:
        """The study as text, a table for each path and problem."""
        head, body = self._cells()
        parts = []
        for title, indices in self._groups():
            parts += [title, records.columns(head, [body[i] for i in indices], left={0, 1}), *self.notes(indices), ""]
        if self.counters:
            parts += ["counted by the hardware, beside each stage's formula", counters.table(self.counters), ""]
        elif self.uncounted:
            parts += [f"No hardware counters: {self.uncounted}.", ""]
        return "\n".join(parts).rstrip()

    def __str__(self) -> str:
        return self.table()

    def markdown(self) -> Markdown:
        """The study as Markdown tables."""
        head, body = self._cells()
        lines = []
        for title, indices in self._groups():
            lines += [f"**{title}**", "", "| " + " | ".join(head) + " |"]
            lines.append("| --- | --- |" + " ---: |" * (len(head) - 2))
            lines += ["| " + " | ".join(body[i]) + " |" for i in indices]
            lines += ["", *(f"{note}  " for note in self.notes(indices)), ""]
        return Markdown("\n".join(lines))

    def _repr_markdown_(self) -> str:
        return str(self.markdown())


# ------------------------------------------------------------------------------------------------------------- benches


class Prepared(Protocol):
    """A problem with its buffers on the device."""

    def time(self, stage: Stage) -> Timing:
        """Check, time, check again on fresh inputs. Raises WrongResult."""

    def peers(self) -> list[Peer]:
        """The libraries' times for the same."""


class Bench(Protocol):
    """What a study needs to time stages; GpuBench is the GPU's."""

    machine: Machine

    def prepare(self, problem: DepthwiseConv1d, path: str) -> Any:
        """A context manager around a Prepared. Raises OutOfMemory."""

    def environment(self) -> dict[str, Any]:
        """Where this is, for a record."""

    def counters(self, todo: Sequence[Stage], shapes: Sequence[DepthwiseConv1d]) -> list[Counters]:
        """What the hardware counts. Raises CountersError where it cannot be asked."""


class GpuBench:
    """The present GPU with its measured ceilings. Raises TimingError in simulated mode.

    clock, machine: another clock, and a machine whose ceilings are known, in place of the GPU's own.
    """

    def __init__(
        self, *, quick: bool = False, clock: timing.Clock | None = None, machine: Machine | None = None
    ) -> None:
        self.clock = clock or timing.DeviceClock()
        self.machine = machine or machines.measure(quick=quick, clock=self.clock)
        self.how = QUICK_TIMING if quick else TIMING

    def environment(self) -> dict[str, Any]:
        return machines.environment(self.machine)

    def counters(self, todo: Sequence[Stage], shapes: Sequence[DepthwiseConv1d]) -> list[Counters]:
        return counters.measure(todo, shapes)

    @contextmanager
    def prepare(self, problem: DepthwiseConv1d, path: str) -> Iterator[Prepared]:
        from dwlab.target import cuda

        size = problem.compulsory_bytes(path)
        sets = timing.sets_for(size, self.machine.l2_bytes or 0)
        free = cuda.current_context().get_memory_info()[0]
        check_memory(problem, path, sets, free)
        try:
            prepared = _OnGpu(self, problem, path, sets)
        except Exception as error:
            if is_out_of_memory(error):
                raise OutOfMemory(memory_message(problem, path, sets, free)) from error
            raise
        try:
            yield prepared
        finally:
            prepared.close()


class _OnGpu:
    """A problem's buffers on the GPU: several sets where one would fit the L2."""

    def __init__(self, bench: GpuBench, problem: DepthwiseConv1d, path: str, sets: int) -> None:
        from dwlab.target import cuda

        self.bench, self.problem, self.path, self.seed = bench, problem, path, 0
        self.cold = timing.cache_state(problem.compulsory_bytes(path), bench.machine.l2_bytes or 0, sets)
        self.sets: list[dict[str, Any]] = []
        self.inputs: dict[str, np.ndarray] = {}
        shapes = problem.shapes(path)
        # Pages of the host that are touched once serve for every check.
        self.host = {name: problem.nans(name, path) for name in problem.outputs(path)}
        kinds = {name: problem.storage_of(name) for name in problem.arrays(path)}
        for _ in range(sets):
            self.sets.append({name: cuda.device_array(shapes[name], kinds[name]) for name in kinds})
        self.refresh()

    def refresh(self) -> None:
        """Fresh inputs in every set; the first set's stay on the host, for the check."""
        from dwlab.target import cuda

        for i, arrays in enumerate(self.sets):
            self.seed += 1
            made = self._fresh()
            for name, values in made.items():
                arrays[name].copy_to_device(values)
            if i == 0:
                self.inputs = made
        # The stream that is timed does not wait for the default one.
        cuda.synchronize()

    def _fresh(self) -> dict[str, np.ndarray]:
        """Inputs that differ from the last ones everywhere. Large ones are the last, each moved on by chance: random
        numbers take longer to make than everything else here.
        """
        if not self.inputs or self.problem.compulsory_bytes(self.path) < MOVED_ON:
            return self.problem.inputs(self.path, seed=self.seed)
        rng = np.random.default_rng(self.seed)
        return {
            name: np.roll(values.reshape(-1), int(rng.integers(1, max(2, values.size)))).reshape(values.shape)
            for name, values in self.inputs.items()
        }

    def check(self, stage: Stage) -> None:
        """Runs the stage once on poisoned outputs. Raises WrongResult."""
        from dwlab.target import cuda

        arrays = self.sets[0]
        for name in self.host:
            _poison(arrays[name])
        stage.run(self.problem, arrays)
        cuda.synchronize()
        for name, values in self.host.items():
            arrays[name].copy_to_host(values)
            wrong = spot_check(self.problem, self.path, self.inputs, name, values)
            if wrong:
                raise WrongResult(f"{stage.id} at {self.problem}: {wrong}")

    def time(self, stage: Stage) -> Timing:
        self.check(stage)
        launches: list[timing.Launch] = []
        for arrays in self.sets:
            launches.append(stage.starter(self.problem, arrays))
        timed = timing.time_launches(launches, cold=self.cold, clock=self.bench.clock, **self.bench.how)
        self.refresh()
        self.check(stage)
        return timed

    def peers(self) -> list[Peer]:
        def verify(tensors: dict[str, Any]) -> str:
            for name, tensor in tensors.items():
                values = tensor.contiguous().float().cpu().numpy()
                # Sums over the batch are long, and a library may take them in any order. In 16 bits it rounds the
                # filters and every result, dw too.
                relative = {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(self.problem.dtype)
                if relative is None:
                    relative = 1e-4 if name == "dw" else 1e-5
                wrong = spot_check(self.problem, self.path, self.inputs, name, values, relative)
                if wrong:
                    return wrong
            return ""

        return peers.measure(self.problem, self.path, self.sets, verify, cold=self.cold, **self.bench.how)

    def close(self) -> None:
        """Gives the buffers back."""
        from dwlab.target import cuda

        self.sets.clear()
        cuda.synchronize()
        pending = getattr(cuda.current_context(), "deallocations", None)
        if pending is not None:  # Numba frees late, and PyTorch cannot make it
            pending.clear()


@functools.cache
def _poison_kernel() -> Any:
    from dwlab.target import cuda

    @cuda.jit
    def poison(array, value):
        i = cuda.grid(1)
        if i < array.size:
            array[i] = value

    return poison


def _poison(array: Any) -> None:
    """Fills a C-contiguous device array of float32, or of float16's or bfloat16's bits, with NaN."""
    flat, value = array.reshape(math.prod(array.shape)), np.float32(np.nan)
    if array.dtype.itemsize == 2:
        flat, value = flat.view(np.uint16), problems.NAN_BITS
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")  # Numba's word on small arrays
        _poison_kernel()[-(-flat.size // 256), 256](flat, value)


def spot_check(
    problem: DepthwiseConv1d,
    path: str,
    inputs: dict[str, np.ndarray],
    name: str,
    values: np.ndarray,
    relative: float | None = None,
) -> str:
    """What is wrong with an output at a shape too large for a whole reference; "" if nothing was found.

    Every element must be finite (outputs are poisoned with NaN beforehand). Some channels, and for paths that do not
    sum over the batch some entries, the first and the last among them, are held against float64: within the
    reference's tolerance, or, for other orders of summation, within ``relative`` in ‖out - ref‖ / ‖ref‖.
    """
    path = problem.alone(name)
    expected = problem.shapes(path)[name]
    if values.shape != expected:
        return f"{name} has shape {values.shape}, not {expected}"
    stored = problem.dtype_of(name)
    # In 16 bits all ones in the exponent's place is no finite number: no float32 is made of every element.
    ones = {"float16": 0x7C00, "bfloat16": 0x7F80}.get(stored if values.dtype.itemsize == 2 else "")
    finite = np.isfinite(values) if ones is None else (values.view(np.uint16) & np.uint16(ones)) != ones
    bad = values.size - int(np.count_nonzero(finite))
    if bad:
        where = tuple(int(i) for i in np.unravel_index(int(np.argmin(finite)), values.shape))
        return f"{bad:,} of {values.size:,} elements of {name} were not written or are not finite, the first at {where}"
    channels = _sample(problem.H, 4)
    entries = np.arange(problem.B) if path == "weight_grad" else _sample(problem.B, 8)
    small = replace(problem, B=len(entries), H=len(channels))

    def part(key: str, array: np.ndarray) -> np.ndarray:
        return array[channels] if "w" in key else array[np.ix_(entries, channels)]

    few = {key: part(key, array) for key, array in inputs.items() if key in problem.arrays(path)}
    got = problems.decode(part(name, values), stored).astype(np.float64)
    wanted = references.reference(small, path, few)[name]
    if relative is not None:
        error = float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
        return "" if error <= relative else f"{name} is off by {error:.1e} of its norm; {relative:.0e} is allowed"
    excess = np.abs(got - wanted) - references.allowed_error(small, path, few)[name]
    if (excess <= 0).all():
        return ""
    at = np.unravel_index(int(np.argmax(excess)), excess.shape)
    full = (
        [int(channels[at[0]]), int(at[1])] if "w" in name else [int(entries[at[0]]), int(channels[at[1]]), int(at[2])]
    )
    return f"{name}{full} is {got[at]:.7g}, not {wanted[at]:.7g}"


def _sample(n: int, most: int) -> np.ndarray:
    """Up to ``most`` of 0..n-1, ascending: the first, the last, and others by chance."""
    if n <= most:
        return np.arange(n)
    inner = np.random.default_rng(n).choice(np.arange(1, n - 1), most - 2, replace=False)
    return np.array([0, *sorted(inner), n - 1])


# ------------------------------------------------------------------------------------------------------------- memory


def memory_needed(problem: DepthwiseConv1d, path: str, sets: int = 1) -> int:
    """Bytes of GPU memory that timing takes: the arrays, once for each set of buffers."""
    return sets * problem.compulsory_bytes(path)


def check_memory(problem: DepthwiseConv1d, path: str, sets: int, free: int) -> None:
    """Raises OutOfMemory if the arrays do not fit into 95 % of the free bytes."""
    if memory_needed(problem, path, sets) > 0.95 * free:
        raise OutOfMemory(memory_message(problem, path, sets, free))


def memory_message(problem: DepthwiseConv1d, path: str, sets: int, free: int) -> str:
    """How much is needed, how much is free, and a smaller shape that fits."""
    names = ", ".join(problem.arrays(path))
    need = f"{problem} needs {memory_needed(problem, path, sets) / 1e6:,.1f} MB of GPU memory for {names}"
    fits = smaller(problem, path, free)
    if fits is None:
        return f"{need}; {free / 1e6:,.1f} MB are free, too little for any shape: close what else uses the GPU"
    shape = ",".join(str(value) for value in (fits.B, fits.H, fits.L, fits.K, fits.padding))
    return (
        f"{need}; {free / 1e6:,.1f} MB are free. "
        f"This fits: --problem {shape} ({memory_needed(fits, path) / 1e6:,.1f} MB)"
    )


def smaller(problem: DepthwiseConv1d, path: str, free: int) -> DepthwiseConv1d | None:
    """The problem with B, then H, then L halved until it takes at most half of the free bytes; None if none does."""
    for size in ("B", "H", "L"):
        while memory_needed(problem, path) > 0.5 * free and getattr(problem, size) > 1:
            problem = replace(problem, **{size: getattr(problem, size) // 2})
    return problem if memory_needed(problem, path) <= 0.5 * free else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of numba.cuda or PyTorch says that the GPU's memory is used up."""
    return "OUT_OF_MEMORY" in str(error).upper() or "OUTOFMEMORY" in type(error).__name__.upper()


# ------------------------------------------------------------------------------------------------------------- study


def counted_problem(problem: DepthwiseConv1d, outputs: int = COUNTED_OUTPUTS) -> DepthwiseConv1d:
    """The problem with few enough rows to be interpreted: same L, K and padding where a row fits into ``outputs``."""
    L = min(problem.L, outputs)
    H = min(problem.H, 16, max(1, outputs // L))
    B = min(problem.B, 4, max(1, outputs // (H * L)))
    K = min(problem.K, COUNTED_TAPS)
    padding = problem.padding if isinstance(problem.padding, str) else min(problem.padding, K - 1)
    return replace(problem, B=B, H=H, L=L, K=K, padding=padding)


def count(stage: Stage, problem: DepthwiseConv1d) -> tuple[int, str]:
    """What the interpreter counts of a stage on a problem: global bytes moved, and how an exact formula differs.

    The second is "" where the formula is an estimate or agrees; it says so where the interpreter cannot run the kernel.
    """
    from dwlab import simt, traffic

    try:
        found = traffic.Comparison(stage.id, problem, stage.traffic(problem), traffic.count(stage, problem))
    except simt.SimtError as error:
        return 0, f"it cannot be counted: {error}"
    differ = [
        f"{name.replace('_', ' ')} {counted:,} counted, {said:,} predicted"
        for name in traffic.COUNTS
        if (counted := getattr(found.counted, name)) != (said := getattr(found.predicted, name))
    ]
    return found.counted.bytes_moved, "; ".join(differ) if found.predicted.exact else ""


def study(
    op: str | None = None,
    path: str | None = None,
    problem: DepthwiseConv1d | Sequence[DepthwiseConv1d] | None = None,
    quick: bool = False,
    *,
    bench: Bench | None = None,
    mode: str | None = None,
    judge: Callable[[Stage], Any] | None = None,
    counter: Callable[[Stage, DepthwiseConv1d], tuple[int, str]] = count,
    chosen: Sequence[Stage] | None = None,
    runs: Sequence[records.Record] | None = None,
    hardware: bool = True,
    progress: Callable[[str], None] = lambda what: None,
) -> Study:
    """Every stage of an op and path, on one problem or several.

    problem: the paper's if None, or with ``quick`` a smaller one. quick: fewer rounds, no peers. bench: what times the
    stages; the present GPU in gpu mode, nothing in simulated mode. judge, counter, chosen, runs: the judge of kernels,
    the counter of traffic, the stages and the records to use in place of the project's. hardware: ask for the GPU's own
    counters too. progress: told what is next.
    Raises StageError for an op or path that does not exist, OutOfMemory for a problem too large for the GPU.
    """
    if mode is None:
        from dwlab import target

        mode = target.mode
    todo = stages.stages(op, path) if chosen is None else tuple(chosen)
    if judge is None:
        from dwlab.check import check as judge
    if problem is None:
        shapes: tuple[DepthwiseConv1d, ...] = (QUICK_PROBLEM if quick and mode == "gpu" else PROBLEM,)
    else:
        shapes = (problem,) if isinstance(problem, DepthwiseConv1d) else tuple(problem)
        if not shapes or not all(isinstance(shape, DepthwiseConv1d) for shape in shapes):
            raise StudyError(f"{problem!r} is no problem, nor a sequence of some: give a dwlab.DepthwiseConv1d")
    for shape in shapes:
        if shape.L * shape.K > MOST_PRODUCTS:
            raise StudyError(
                f"{shape} has L*K = {shape.L * shape.K:,}; a study predicts traffic up to {MOST_PRODUCTS:,}: "
                "give a smaller L or K"
            )
    if runs is None:
        runs = [] if mode == "gpu" else records.load_runs()

    judged: dict[tuple[str, str], str] = {}
    dtypes = dict.fromkeys(shape.dtype for shape in shapes)
    for stage in todo:
        progress(f"check {stage.name}")
        for dtype in dtypes:
            if dtype in stage.dtypes:
                judged[stage.id, dtype] = _judged(judge, stage, dtype)
    if bench is None and mode == "gpu":
        progress("ceilings")
        bench = GpuBench(quick=quick)

    rows: list[Row] = []
    tried: list[dict[str, Any]] = []
    for shape in shapes:
        small = counted_problem(shape)
        for one_path in dict.fromkeys(stage.path for stage in todo):
            # A stage that is not for this shape would run another stage's kernel: that one has a row of its own.
            here = [stage for stage in todo if stage.path == one_path and stage.supports(shape)]
            made = []
            for stage in here:
                progress(f"count {stage.name}")
                counted, differs = counter(stage, small)
                made.append(_row(stage, shape, small, judged[stage.id, shape.dtype], counted, differs))
            if bench is None:
                made = [_with_record(row, kernel_digest(stage), runs) for row, stage in zip(made, here, strict=True)]
            else:
                made, ran = _timed(bench, here, made, shape, quick, progress)
                tried += ran
            rows += made
    if bench is None:
        return Study(mode, tuple(rows))
    environment = bench.environment()
    rows = [
        replace(row, measured=replace(row.measured, date=environment["date"])) if row.measured else row for row in rows
    ]
    counted_by_gpu: list[dict[str, Any]] = []
    uncounted = "left out for --quick" if quick else "" if hardware else "not asked for"
    right = [stage for stage in todo if all(row.passed for row in rows if row.id == stage.id) and _registered(stage)]
    if not uncounted and right:
        progress("hardware counters")
        try:
            # The main problem, and the small one at which the interpreter counted.
            wanted = (shapes[0], counted_problem(shapes[0]))
            counted_by_gpu = [one.to_dict() for one in bench.counters(right, wanted)]
        except CountersError as error:
            uncounted = str(error)
    return Study(mode, tuple(rows), bench.machine, environment, tuple(tried), tuple(counted_by_gpu), uncounted)


def _registered(stage: Stage) -> bool:
    """Whether this is the stage that its id names: the process that ncu watches finds stages by their ids."""
    try:
        return stages.stage(stage.id).kernel is stage.kernel
    except stages.StageError:
        return False


def steps(todo: Sequence[Stage], shapes: int, mode: str, quick: bool = False) -> int:
    """How often a study of these stages on so many problems tells its progress."""
    paths = len({stage.path for stage in todo})
    counted = len(todo) * (1 + shapes)
    return counted if mode != "gpu" else 1 + counted + shapes * (len(todo) + paths) + (not quick)


def _judged(judge: Callable[..., Any], stage: Stage, dtype: str) -> str:
    """ "" if the judge passes the stage on rows of this dtype, else its verdict in one line."""
    verdict = judge(stage) if dtype == "float32" else judge(stage, dtype=dtype)
    if verdict.passed:
        return ""
    lines = [line.strip() for line in str(verdict).splitlines() if line.strip()]
    # The first line says how many problems failed, the first finding what is wrong.
    found = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return "; ".join([*lines[:1], *found[:1]]) or "rejected"


def _row(stage: Stage, shape: DepthwiseConv1d, small: DepthwiseConv1d, wrong: str, counted: int, differs: str) -> Row:
    size, asked = shape.compulsory_bytes(stage.path), stage.traffic(shape).bytes_moved
    verdict = wrong or (f"traffic at {small}: {differs}" if differs else "")
    return Row(
        op=stage.op,
        path=stage.path,
        order=stage.order,
        stage=stage.name,
        problem=records.describe_problem(shape),
        dtype=shape.dtype,
        passed=not verdict,
        verdict=verdict or "right",
        flops=shape.flops_of(stage.path),
        compulsory_bytes=size,
        intensity=shape.flops_of(stage.path) / size,
        predicted_bytes=asked,
        intensity_asked=shape.flops_of(stage.path) / asked,
        counted_problem=records.describe_problem(small),
        counted_bytes=counted,
        counted_prediction=stage.traffic(small).bytes_moved,
    )


def kernel_digest(stage: Stage) -> str:
    """SHA-256 of the stage's constants and kernel, by which a record tells what it measured."""
    return hashlib.sha256(stage.source().encode()).hexdigest()


def _with_record(row: Row, digest: str, runs: Sequence[records.Record]) -> Row:
    """The row with its newest recorded measurement, if there is one; said where its kernel was another then."""
    for run in reversed(runs):
        alike = [one for one in run.measurements if one.dtype == row.dtype]
        found = records.best(row.op, row.path, row.stage, row.problem, rows=alike)
        if found:
            older = "" if found.kernel_sha256 == digest else f" (of an earlier {row.stage} kernel)"
            return replace(row, measured=found, source=f"recorded on {run.where()}{older}")
    return row


def _timed(
    bench: Bench,
    here: Sequence[Stage],
    rows: Sequence[Row],
    shape: DepthwiseConv1d,
    quick: bool,
    progress: Callable[[str], None],
) -> tuple[list[Row], list[dict[str, Any]]]:
    """The rows with their measurements, and the peers tried."""
    ceilings = bench.machine.ceilings
    if ceilings is None:
        raise StudyError(f"no ceilings were measured for {bench.machine.name}")
    made = list(rows)
    times: dict[int, Timing] = {}
    with bench.prepare(shape, here[0].path) as prepared:
        for i, stage in enumerate(here):
            progress(f"time {stage.name}")
            if not made[i].passed:
                continue  # a wrong kernel's time means nothing
            try:
                times[i] = prepared.time(stage)
            except WrongResult as error:
                made[i] = replace(made[i], passed=False, verdict=str(error))
        progress("peers")
        ran = [] if quick else prepared.peers()
    peer = peers.fastest(ran)
    naive_us = next((timed.median_us for i, timed in times.items() if here[i].name == "naive"), None)
    for i, timed in times.items():
        measured = measurement(here[i], shape, timed, ceilings, bench.machine.name, naive_us, peer, made[i])
        try:
            roofline.points([measured], ceilings)
        except roofline.RooflineError as error:
            made[i] = replace(made[i], passed=False, verdict=str(error))
        made[i] = replace(made[i], measured=measured, source="measured")
    shown = {"path": here[0].path, "shape": records.describe_problem(shape), "dtype": shape.dtype}
    listed = [one.to_dict() | shown for one in ran]
    return made, listed


def measurement(
    stage: Stage,
    shape: DepthwiseConv1d,
    timed: Timing,
    ceilings: Ceilings,
    gpu: str,
    naive_us: float | None,
    peer: Peer | None,
    row: Row,
) -> Measurement:
    """A record's row from a timing. The date is the record's own, and empty until it is written."""
    gbps = row.compulsory_bytes / timed.median_us / 1e3
    peer_us = peer.time.median_us if peer and peer.time else None
    return Measurement(
        gpu=gpu,
        date="",
        op=stage.op,
        path=stage.path,
        stage=stage.name,
        problem=records.describe_problem(shape),
        dtype=shape.dtype,
        time_us=timed.median_us,
        p10_us=timed.p10_us,
        p90_us=timed.p90_us,
        rounds=timed.rounds,
        launches=timed.launches,
        method=timed.method,
        cold=timed.cold,
        compulsory_bytes=row.compulsory_bytes,
        effective_gbps=gbps,
        copy_gbps=ceilings.copy_gbps,
        fraction_of_copy=gbps / ceilings.copy_gbps,
        flops=row.flops,
        intensity=row.intensity,
        speedup_vs_naive=naive_us / timed.median_us if naive_us else None,
        peer=peer.name if peer_us else None,
        peer_time_us=peer_us,
        speedup_vs_peer=peer_us / timed.median_us if peer_us else None,
        predicted_bytes=row.predicted_bytes,
        order=stage.order,
        kernel_sha256=kernel_digest(stage),
        note=timed.note,
    )


# ------------------------------------------------------------------------------------------------------------- command


def main(args: argparse.Namespace) -> int:
    """``python -m dwlab study``: 0, or 1 if a check fails. Errors of names, sizes, memory and records are raised.

    A record gets its report, Markdown and PNG, beside it, or in the folder that --report names. --report alone writes
    that of the newest record.
    Whether the record can be written is asked before anything is measured. If it then cannot be written all the same,
    the measurements go to stderr as JSON, and the status is 2.
    """
    from dwlab import target

    if args.record or args.report:
        if target.mode != "gpu" and args.record:
            raise StudyError(
                f"--record needs a GPU: nothing is measured in simulated mode ({target.reason}). "
                "What others measured: python -m dwlab records"
            )
        if args.report:
            _make_folder(args.report)
        if args.record:
            records.check_writable(args.record)
    shapes = [problems.problem(text) for text in args.problem] if args.problem else None
    todo = stages.stages(args.op, args.path)
    # A record that cannot be read is named, and the others serve.
    runs = [] if target.mode == "gpu" else records.load_runs(on_error=lambda e: print(f"dwlab: {e}", file=sys.stderr))
    with _progress(steps(todo, len(shapes or [1]), target.mode, args.quick)) as progress:
        made = study(problem=shapes, quick=args.quick, mode=target.mode, chosen=todo, runs=runs, progress=progress)
    print(json.dumps(made.to_dict(), indent=1, ensure_ascii=False) if args.json else made.table())
    if args.record:
        try:
            path = made.write(args.record)
            print(f"recorded: {path.name}", file=sys.stderr)
        except records.RecordError as error:
            print(f"dwlab: {error}. What was measured follows, so that it is not lost:", file=sys.stderr)
            print(json.dumps(made.to_dict(), ensure_ascii=False), file=sys.stderr)
            return 2
        run: records.Record | None = records.read_run(path)
        # The project's own records hold nothing but records.
        folder = args.report or (None if path.resolve().parent == records.FOLDER.resolve() else path.parent)
    else:
        folder = args.report
        run = report.newest() if folder else None
        if folder and run is None:
            raise StudyError("--report writes what a record holds, and none is of the paper's shape: add --record FILE")
    if folder:
        print(f"reported: {', '.join(one.name for one in report.write(run, folder))}", file=sys.stderr)
    return 0 if made.passed else 1


def _make_folder(path: str) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StudyError(f"--report {path}: no folder can be there ({error.strerror})") from error


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal; quiet in a pipe."""
    from tqdm import tqdm

    # disable=None: tqdm keeps quiet where stderr is no terminal.
    with tqdm(total=total, disable=None, file=sys.stderr, leave=False, unit="step") as bar:

        def told(what: str) -> None:
            bar.set_description_str(what)
            bar.update()

        yield told
