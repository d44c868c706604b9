"""The study: every stage checked, its traffic predicted and counted, and on a GPU timed. ``python -m dwlab study``.

Check, time, check again on fresh inputs. Effective bandwidth counts a problem's compulsory bytes, so a stage that moves
more never looks faster. The ceilings are measured in the same run as the stages. Without a GPU the columns of time hold
what was recorded, labelled, or nothing. A stage fails if the judge rejects it, if an exact traffic formula differs from
the count, if its output at the measured shape is wrong, or if its point lies above a ceiling.
"""

from __future__ import annotations

import argparse
import functools
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

from dwlab import problems, records, report
from dwlab.compiler import precompile as ahead
from dwlab.gpu import provenance
from dwlab.gpu.machine import Ceilings, Machine
from dwlab.judge import check, formulas
from dwlab.kernels import registry
from dwlab.kernels.registry import Stage
from dwlab.measure import counters, device, layer_peers, peers, timing
from dwlab.measure.counters import Counters, CountersError
from dwlab.measure.peers import Peer
from dwlab.measure.timing import Timing
from dwlab.model import roofline
from dwlab.problems import DepthwiseConv1d, Problem, layers, references
from dwlab.problems.cases import OWN_SEED
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.records import Measurement, tabular, terminal, writing
from dwlab.records.tabular import Markdown

PROBLEM = problems.PAPER
QUICK_PROBLEM = replace(problems.PAPER, B=1024)


def _mobilenet_v2(layout: str) -> dict[tuple[str, str], Problem]:
    """The layers of MobileNetV2's third block (C = 24, 144 channels inside, maps of 56 x 56) at batch 32."""
    how = {"layout": layout, "bias": True}
    depthwise = DepthwiseConv2d(32, 144, 56, 56, 3, activation="relu6", **how)
    expand = Pointwise(32, 24, 144, 56, 56, activation="relu6", **how)
    project = Pointwise(32, 144, 24, 56, 56, **how)
    return {
        ("depthwise2d", "forward"): depthwise,
        ("pointwise", "forward"): project,
        ("fused", "dwpw"): Fused(depthwise, project),
        ("fused", "pwdw"): Fused(expand, depthwise),
        ("fused", "pwpw"): Fused(project, expand),
    }


LAYERS = {key: (one, _mobilenet_v2("NCHW")[key]) for key, one in _mobilenet_v2("NHWC").items()}
"""Op and path -> the layers that a study takes where it is given none, in both layouts."""

COUNTED_OUTPUTS = 4096  # outputs of the problem that the interpreter counts, at most
COUNTED_PRODUCTS = 1 << 18  # multiplications of counted layers, about
COUNTED_TAPS = 4096  # taps of it, at most
JUDGED_ON = 6  # problems, of kernels that are compiled anew for each
TIMING = {"rounds": 15, "min_seconds": 0.2, "most_seconds": 1.5}
QUICK_TIMING = {"rounds": 5, "min_seconds": 0.05, "most_seconds": 0.5}
MOVED_ON = 2**26  # bytes of a problem from which fresh inputs are the last ones moved on
EXCERPT_PIXELS = 2**21  # elements of x, about, that are held against float64
MOST_BYTES = 2**42  # of all arrays of a problem: beyond any GPU's memory
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

    counters: the hardware's counters (dwlab.measure.counters); uncounted: why there are none on a GPU.
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
        """Records what was measured as a new file; more: sections and notes for it. See records.writing.

        Raises StudyError if nothing was measured.
        """
        if self.environment is None or self.machine is None or self.machine.ceilings is None:
            raise StudyError("nothing was measured, so there is nothing to record: a record needs a GPU")
        return writing.write(
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
        recorded = any(row.measured for row in self.rows) and self.mode != "gpu"  # not of this machine: see below
        head = [
            "stage",
            "check",
            "recorded µs" if recorded else "time µs",
            "eff. GB/s",
            "of copy",
            "× naive",
            "× peer",
            "FLOP/B",
        ]
        head += ["FLOP/B asked", "predicted MB", "counted kB", "formula kB"]
        body = []
        for row in self.rows:
            m = row.measured
            body.append(
                [
                    row.stage,
                    "right" if row.passed else "WRONG",
                    tabular.rounded(m.time_us) if m else "",
                    tabular.rounded(m.effective_gbps) if m else "",
                    f"{100 * m.fraction_of_copy:.1f} %" if m else "",
                    tabular.times(m.speedup_vs_naive) if m else "",
                    tabular.times(m.speedup_vs_peer) if m else "",
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

    def table(self, columns: int | None = None) -> str:
        """The study as text, a table for each path and problem, in lines of `columns` characters (None: any)."""
        head, body = self._cells()
        parts = []
        for title, indices in self._groups():
            rows = [body[i] for i in indices]
            text = terminal.table(head, rows, (0, 1), columns=columns, cut=0, spare=(8, 9, 7, 3, 11, 10, 5))
            parts += [title, text, *(terminal.wrapped(note, columns) for note in self.notes(indices)), ""]
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
            lines += [f"**{title}**", "", tabular.markdown(head, [body[i] for i in indices], (0, 1))]
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

    def prepare(self, problem: Problem, path: str) -> Any:
        """A context manager around a Prepared. Raises OutOfMemory."""

    def environment(self) -> dict[str, Any]:
        """Where this is, for a record."""

    def counters(self, todo: Sequence[Stage], shapes: Sequence[Problem]) -> list[Counters]:
        """What the hardware counts. Raises CountersError where it cannot be asked."""


class GpuBench:
    """The present GPU with its measured ceilings. Raises TimingError in simulated mode.

    clock, machine: another clock, and a machine whose ceilings are known, in place of the GPU's own.
    """

    def __init__(
        self, *, quick: bool = False, clock: timing.Clock | None = None, machine: Machine | None = None
    ) -> None:
        self.clock = clock or timing.DeviceClock()
        self.machine = machine or device.measure(quick=quick, clock=self.clock)
        self.how = QUICK_TIMING if quick else TIMING

    def environment(self) -> dict[str, Any]:
        return provenance.environment(self.machine)

    def counters(self, todo: Sequence[Stage], shapes: Sequence[Problem]) -> list[Counters]:
        return counters.measure(todo, shapes)

    @contextmanager
    def prepare(self, problem: Problem, path: str) -> Iterator[Prepared]:
        from dwlab.gpu.target import cuda

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

    def __init__(self, bench: GpuBench, problem: Problem, path: str, sets: int) -> None:
        from dwlab.gpu.target import cuda

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
        from dwlab.gpu.target import cuda

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
        from dwlab.gpu.target import cuda

        arrays = self.sets[0]
        first: dict[str, np.ndarray] = {}
        # Whole numbers have no NaN: they are written if they come out the same, whatever was there before.
        twice = any(values.dtype.kind == "i" for values in self.host.values())
        for poison in POISONS[: 1 + twice]:
            for name in self.host:
                _poison(arrays[name], poison)
            stage.run(self.problem, arrays)
            cuda.synchronize()
            for name, values in self.host.items():
                arrays[name].copy_to_host(values)
                wrong = spot_check(self.problem, self.path, self.inputs, name, values)
                differ = np.count_nonzero(first.get(name, values) != values) if twice else 0
                if differ:
                    wrong = f"{differ:,} of {values.size:,} elements of {name} were not written, or differ between runs"
                if wrong:
                    raise WrongResult(f"{stage.id} at {self.problem}: {wrong}")
                if twice:
                    first[name] = values.copy()

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
        if not isinstance(self.problem, DepthwiseConv1d):
            return self._layer_peers()

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

    def _layer_peers(self) -> list[Peer]:
        theirs = layer_peers.peer_problem(self.problem)
        if theirs != self.problem:  # stored otherwise: in buffers of their own
            if not peers.available():
                return []
            with self.bench.prepare(theirs, self.path) as prepared:
                return prepared.peers()

        def verify(tensors: dict[str, Any]) -> str:
            values = tensors["y"].contiguous().float().cpu().numpy()
            allowed = layer_peers.relative_error(self.problem.dtype)
            return spot_check(self.problem, self.path, self.inputs, "y", values, allowed)

        return layer_peers.measure(self.problem, self.sets, verify, cold=self.cold, compiled=True, **self.bench.how)

    def close(self) -> None:
        """Gives the buffers back."""
        from dwlab.gpu.target import cuda

        self.sets.clear()
        cuda.synchronize()
        pending = getattr(cuda.current_context(), "deallocations", None)
        if pending is not None:  # Numba frees late, and PyTorch cannot make it
            pending.clear()


@functools.cache
def _poison_kernel() -> Any:
    from dwlab.gpu.target import cuda

    @cuda.jit
    def poison(array, value):
        i = cuda.grid(1)
        if i < array.size:
            array[i] = value

    return poison


POISONS = (np.int8(-86), np.int8(85))
"""What int8 outputs hold before a kernel runs, one after the other."""


def _poison(array: Any, whole: np.int8 = POISONS[0]) -> None:
    """Fills a C-contiguous device array of float32, or of float16's or bfloat16's bits, with NaN; of int8 with
    ``whole``."""
    flat, value = array.reshape(math.prod(array.shape)), np.float32(np.nan)
    if array.dtype.itemsize == 1:
        value = whole
    elif array.dtype.itemsize == 2:
        flat, value = flat.view(np.uint16), problems.NAN_BITS
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")  # Numba's word on small arrays
        _poison_kernel()[-(-flat.size // 256), 256](flat, value)


def spot_check(
    problem: Problem,
    path: str,
    inputs: dict[str, np.ndarray],
    name: str,
    values: np.ndarray,
    relative: float | None = None,
) -> str:
    """What is wrong with an output at a shape too large for a whole reference; "" if nothing was found.

    Every element must be finite (outputs are poisoned with NaN beforehand). Some channels, and for paths that do not
    sum over the batch some entries or images, the first and the last among them, are held against float64: within the
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
    some = excerpt(problem, path, name)
    few = {key: some.cut(key, array) for key, array in inputs.items() if key in problem.arrays(path)}
    return some.compare(some.reference(few), problems.decode(some.cut(name, values), stored), relative)


@dataclass(frozen=True)
class Excerpt:
    """A part of a problem that is a problem itself: small, and one of its outputs is a part of the whole's.

    kept: array -> for each axis the places that are kept, ascending.
    """

    problem: Problem
    path: str
    name: str
    kept: dict[str, tuple[np.ndarray, ...]]

    def cut(self, key: str, array: np.ndarray) -> np.ndarray:
        """The part of an array of the whole problem."""
        return array[np.ix_(*self.kept[key])]

    def reference(self, few: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(output in float64, its allowed error) for the parts of the inputs."""
        return tuple(
            found(self.problem, self.path, few)[self.name] for found in (references.reference, references.allowed_error)
        )

    def compare(self, wanted: tuple[np.ndarray, np.ndarray], got: np.ndarray, relative: float | None = None) -> str:
        """What is wrong with the part of the output that came out, as in ``spot_check``; "" if nothing."""
        got = got.astype(np.float64)
        exact, allowed = wanted
        if relative is not None:
            size = float(np.linalg.norm(exact))
            error = float(np.linalg.norm(got - exact)) / size if size else float(np.linalg.norm(got))
            if error <= relative:
                return ""
            return f"{self.name} is off by {error:.1e} of its norm; {relative:.0e} is allowed"
        excess = np.abs(got - exact) - allowed
        if (excess <= 0).all():
            return ""
        at = np.unravel_index(int(np.argmax(excess)), excess.shape)
        full = [int(places[i]) for places, i in zip(self.kept[self.name], at, strict=True)]
        return f"{self.name}{full} is {got[at]:.7g}, not {exact[at]:.7g}"


def excerpt(problem: Problem, path: str, name: str) -> Excerpt:
    """The part of a problem that is held against float64 for one of its outputs.

    Of rows some channels and entries; of layers some images, and some of the channels that come out. The first and the
    last are always among them.
    """
    if isinstance(problem, DepthwiseConv1d):
        channels = _sample(problem.H, 4)
        entries = np.arange(problem.B) if path == "weight_grad" else _sample(problem.B, 8)
        small: Problem = replace(problem, B=len(entries), H=len(channels))
        cuts = {"w": {0: channels}, "dw": {0: channels}}
        rows = {key: cuts.get(key, {0: entries, 1: channels}) for key in problem.arrays(path)}
        return Excerpt(small, path, name, _kept(problem, path, rows))
    first, last = (problem.first, problem.second) if isinstance(problem, Fused) else (problem, problem)
    images = _sample(problem.N, max(2, min(8, EXCERPT_PIXELS // (first.C * first.H * first.W))))
    channels = _sample(last.channels_out, 8)
    small = resized(problem, N=len(images), out=len(channels))
    cuts = {}
    for key in problem.arrays(path):
        layer, own = problem.layer_of(key) if isinstance(problem, Fused) else (problem, key)
        # Channels that come out of a depthwise layer are those that go in: of both layers, if it is the last.
        through = layer is last or isinstance(last, DepthwiseConv2d)
        of_channels = {"w": 0, "b": 0, "m": 0, "r": 1, "y": 1}
        of_channels |= {"x": 1} if layer is last and isinstance(layer, DepthwiseConv2d) else {}
        cuts[key] = {0: images} if own in ("x", "r", "y") else {}
        if through and own in of_channels:
            axis = of_channels[own]
            if own in ("x", "r", "y") and layer.layout == "NHWC":
                axis = 3
            elif own == "w" and isinstance(layer, DepthwiseConv2d) and layer.layout == "NHWC":
                axis = 2
            cuts[key][axis] = channels
    return Excerpt(small, path, name, _kept(problem, path, cuts))


def _kept(problem: Problem, path: str, cuts: dict[str, dict[int, np.ndarray]]) -> dict[str, tuple[np.ndarray, ...]]:
    """For every axis of the arrays the places that are kept: all where nothing is cut."""
    shapes = problem.shapes(path)
    return {
        key: tuple(along.get(axis, np.arange(size)) for axis, size in enumerate(shapes[key]))
        for key, along in cuts.items()
    }


def _sample(n: int, most: int) -> np.ndarray:
    """Up to ``most`` of 0..n-1, ascending: the first, the last, and others by chance."""
    if n <= most:
        return np.arange(n)
    inner = np.random.default_rng(n).choice(np.arange(1, n - 1), most - 2, replace=False)
    return np.array([0, *sorted(inner), n - 1])


# ------------------------------------------------------------------------------------------------------------- memory


def memory_needed(problem: Problem, path: str, sets: int = 1) -> int:
    """Bytes of GPU memory that timing takes: the arrays, once for each set of buffers."""
    return sets * problem.compulsory_bytes(path)


def check_memory(problem: Problem, path: str, sets: int, free: int) -> None:
    """Raises OutOfMemory if the arrays do not fit into 95 % of the free bytes."""
    if memory_needed(problem, path, sets) > 0.95 * free:
        raise OutOfMemory(memory_message(problem, path, sets, free))


def memory_message(problem: Problem, path: str, sets: int, free: int) -> str:
    """How much is needed, how much is free, and a smaller shape that fits."""
    names = ", ".join(problem.arrays(path))
    need = f"{problem} needs {memory_needed(problem, path, sets) / 1e6:,.1f} MB of GPU memory for {names}"
    fits = smaller(problem, path, free)
    if fits is None:
        return f"{need}; {free / 1e6:,.1f} MB are free, too little for any shape: close what else uses the GPU"
    return (
        f"{need}; {free / 1e6:,.1f} MB are free. "
        f"This fits: --problem {_as_argument(fits)} ({memory_needed(fits, path) / 1e6:,.1f} MB)"
    )


def _as_argument(problem: Problem) -> str:
    """The problem as --problem takes it."""
    if not isinstance(problem, DepthwiseConv1d):
        return f'"{problem}"'
    return ",".join(str(value) for value in (problem.B, problem.H, problem.L, problem.K, problem.padding))


def smaller(problem: Problem, path: str, free: int) -> Problem | None:
    """The problem with B, then H, then L halved until it takes at most half of the free bytes; None if none does.

    Of layers N, then height and width, then channels are halved.
    """
    if isinstance(problem, DepthwiseConv1d):
        for size in ("B", "H", "L"):
            while memory_needed(problem, path) > 0.5 * free and getattr(problem, size) > 1:
                problem = replace(problem, **{size: getattr(problem, size) // 2})
    else:
        for size in SIZES:
            while memory_needed(problem, path) > 0.5 * free and (less := halved(problem, size)) is not None:
                problem = less
    return problem if memory_needed(problem, path) <= 0.5 * free else None


SIZES = ("N", "map", "C", "between", "out")
"""What ``halved`` halves of a layer: images, height and width of x, channels of x, between two layers, and of y."""


def halved(problem: Problem, size: str) -> Problem | None:
    """The layer or layers with one of SIZES halved; None where it is 1, belongs to another, or leaves no output."""
    first, last = (problem.first, problem.second) if isinstance(problem, Fused) else (problem, problem)
    if size == "map":
        if max(first.H, first.W) == 1:
            return None
        less = {"H": (first.H + 1) // 2, "W": (first.W + 1) // 2}
    else:
        now = {"N": first.N, "C": first.C, "between": first.channels_out, "out": last.channels_out}[size]
        # A depthwise layer's channels have one name; of one layer nothing is between.
        single = not isinstance(problem, Fused)
        same = isinstance(last if single or size == "out" else first, DepthwiseConv2d)
        other = size == "between" and (single or same or isinstance(last, DepthwiseConv2d))
        if now == 1 or other or (size == "out" and single and same):
            return None
        less = {size: now // 2}
    try:
        return resized(problem, **less)
    except problems.ProblemError:  # maps smaller than the filter
        return None


def resized(problem: Problem, **sizes: int) -> Problem:
    """The layer or layers with other sizes: N, H, W and C of x, channels between two layers, channels out.

    What they do is the same. Raises ProblemError for sizes that no layer can have.
    """
    if not isinstance(problem, Fused):
        out = sizes.pop("out", None)
        sizes.pop("between", None)
        if out is not None:
            sizes["F" if isinstance(problem, Pointwise) else "C"] = out
        return replace(problem, **sizes)
    out = sizes.pop("out", None)
    between = sizes.pop("between", None)
    if isinstance(problem.second, DepthwiseConv2d) and out is not None:
        between = out
    first = resized(problem.first, **sizes, **({} if between is None else {"out": between}))
    follows = {"N": first.N, "H": first.P, "W": first.Q, "C": first.channels_out}
    if isinstance(problem.second, Pointwise) and out is not None:
        follows["out"] = out
    return Fused(first, resized(problem.second, **follows))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of numba.cuda or PyTorch says that the GPU's memory is used up."""
    return "OUT_OF_MEMORY" in str(error).upper() or "OUTOFMEMORY" in type(error).__name__.upper()


# ------------------------------------------------------------------------------------------------------------- study


def counted_problem(
    problem: Problem, outputs: int = COUNTED_OUTPUTS, supports: Callable[[Problem], bool] = lambda problem: True
) -> Problem:
    """The problem with few enough rows to be interpreted: same L, K and padding where a row fits into ``outputs``.

    Of layers fewer images, then smaller maps and fewer channels in turn, as long as ``supports`` says yes to them.
    """
    if not isinstance(problem, DepthwiseConv1d):
        return _counted_layers(problem, outputs, supports)
    L = min(problem.L, outputs)
    H = min(problem.H, 16, max(1, outputs // L))
    B = min(problem.B, 4, max(1, outputs // (H * L)))
    K = min(problem.K, COUNTED_TAPS)
    padding = problem.padding if isinstance(problem.padding, str) else min(problem.padding, K - 1)
    return replace(problem, B=B, H=H, L=L, K=K, padding=padding)


def _counted_layers(problem: Problem, outputs: int, supports: Callable[[Problem], bool]) -> Problem:
    def few(one: Problem) -> bool:
        both = (one.first, one.second) if isinstance(one, Fused) else (one,)
        made = [layer.N * layer.P * layer.Q * layer.channels_out for layer in both]
        products = sum(
            n * (layer.C if isinstance(layer, Pointwise) else layer.K**2) for n, layer in zip(made, both, strict=True)
        )
        return max(made) <= outputs and products <= COUNTED_PRODUCTS

    halves = ["N"]
    while halves and not few(problem):
        for size in tuple(halves):
            less = halved(problem, size)
            if less is None or not supports(less):
                halves.remove(size)
                # Images are all alike: only one of them is left before anything else gets smaller.
                halves += SIZES[1:] if size == "N" else ()
            elif not few(problem):
                problem = less
    return problem


def count(stage: Stage, problem: Problem) -> tuple[int, str]:
    """What the interpreter counts of a stage on a problem: global bytes moved, and how an exact formula differs.

    The second is "" where the formula is an estimate or agrees; it says so where the interpreter cannot run the kernel.
    """
    from dwlab import simt
    from dwlab.kernels import traffic

    try:
        found = formulas.Comparison(stage.id, problem, stage.traffic(problem), formulas.count(stage, problem))
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
    problem: Problem | Sequence[Problem] | None = None,
    quick: bool = False,
    *,
    bench: Bench | None = None,
    mode: str | None = None,
    judge: Callable[[Stage], Any] | None = None,
    counter: Callable[[Stage, Problem], tuple[int, str]] = count,
    chosen: Sequence[Stage] | None = None,
    runs: Sequence[records.Record] | None = None,
    hardware: bool = True,
    progress: Callable[[str], None] = lambda what: None,
) -> Study:
    """Every stage of an op and path, on one problem or several; each problem with the stages of its op.

    problem: the paper's and, for each op and path of layers, LAYERS if None; with ``quick`` smaller ones. quick: fewer
    rounds, no peers. bench: what times the
    stages; the present GPU in gpu mode, nothing in simulated mode. judge, counter, chosen, runs: the judge of kernels,
    the counter of traffic, the stages and the records to use in place of the project's. hardware: ask for the GPU's own
    counters too. progress: told what is next.
    Raises StageError for an op or path that does not exist, OutOfMemory for a problem too large for the GPU.
    """
    if mode is None:
        from dwlab.gpu import target

        mode = target.mode
    todo = registry.stages(op, path) if chosen is None else tuple(chosen)
    own_judge = judge is None
    if judge is None:
        judge = _judge
    if problem is None:
        shapes = main_problems(todo, quick and mode == "gpu")
    else:
        shapes = (problem,) if isinstance(problem, Problem) else tuple(problem)
        if not shapes or not all(isinstance(shape, Problem) for shape in shapes):
            raise StudyError(f"{problem!r} is no problem, nor a sequence of some: give a dwlab.DepthwiseConv1d")
        for shape in shapes:
            if not any(_is_for(stage, shape) for stage in todo):
                raise StudyError(f"{shape} is a problem of {shape.op}, which none of the stages asked for computes")
    todo = tuple(stage for stage in todo if any(_is_for(stage, shape) for shape in shapes))
    for shape in shapes:
        if isinstance(shape, DepthwiseConv1d) and shape.L * shape.K > MOST_PRODUCTS:
            raise StudyError(
                f"{shape} has L*K = {shape.L * shape.K:,}; a study predicts traffic up to {MOST_PRODUCTS:,}: "
                "give a smaller L or K"
            )
    if runs is None:
        runs = [] if mode == "gpu" else records.load_runs()

    if mode == "gpu":
        progress("compile")
        _compile_ahead(todo, shapes, own_judge)
    judged: dict[tuple[str, str], str] = {}
    for stage in todo:
        progress(f"check {stage.name}")
        for dtype in dict.fromkeys(shape.dtype for shape in shapes if _is_for(stage, shape)):
            if dtype in stage.dtypes:
                judged[stage.id, dtype] = _judged(judge, stage, dtype)
    if bench is None and mode == "gpu":
        progress("ceilings")
        bench = GpuBench(quick=quick)

    rows: list[Row] = []
    tried: list[dict[str, Any]] = []
    for shape in shapes:
        of_op = [stage for stage in todo if _is_for(stage, shape)]
        for one_path in dict.fromkeys(stage.path for stage in of_op):
            # A stage that is not for this shape would run another stage's kernel: that one has a row of its own.
            here = [stage for stage in of_op if stage.path == one_path and stage.supports(shape)]
            made = []
            for stage in here:
                progress(f"count {stage.name}")
                small = counted_problem(shape, supports=stage.supports)
                counted, differs = counter(stage, small)
                made.append(_row(stage, shape, small, judged[stage.id, shape.dtype], counted, differs))
            if not here:
                continue
            if bench is None:
                made = [_with_record(row, stage.digest, runs) for row, stage in zip(made, here, strict=True)]
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
    right = [stage for stage in right if stage.op == "depthwise1d"]  # the profiler's process reads its problems alone
    main = next((shape for shape in shapes if isinstance(shape, DepthwiseConv1d)), None)
    if not uncounted and main is None:
        uncounted = "they are read for depthwise1d only"
    if not uncounted and right:
        progress("hardware counters")
        try:
            # The main problem, and the small one at which the interpreter counted.
            wanted = (main, counted_problem(main))
            counted_by_gpu = [one.to_dict() for one in bench.counters(right, wanted)]
        except CountersError as error:
            uncounted = str(error)
    return Study(mode, tuple(rows), bench.machine, environment, tuple(tried), tuple(counted_by_gpu), uncounted)


def _compile_ahead(todo: Sequence[Stage], shapes: Sequence[Problem], judging: bool) -> None:
    """Compiles what a study will launch on the GPU, several kernels at a time: one after the other they take far
    longer than all that is judged and timed with them. judging: the judge's problems too.
    """
    from dwlab.gpu import target

    if target.mode != "gpu":
        return
    wanted: list[tuple[Stage, Problem]] = []
    for stage in filter(_registered, todo):  # the processes find stages by their ids
        here = [shape for shape in shapes if _is_for(stage, shape)]
        wanted += [(stage, shape) for shape in here if stage.supports(shape)]
        for dtype in dict.fromkeys(shape.dtype for shape in here if judging):
            wanted += [(stage, problem) for problem in check.judged_on(stage, dtype, _most(stage), OWN_SEED)]
    ahead.compile_for(wanted)


def _most(stage: Stage) -> int | None:
    """On how many problems a study judges a stage before it times it: all, but of kernels that are compiled anew for
    each, some seconds long. Tests judge these on all, and `Prepared.check` where they are timed.
    """
    return JUDGED_ON if isinstance(stage.kernel, registry.ByShape) else None


def _judge(stage: Stage, dtype: str = "float32") -> check.Verdict:
    # One seed: what is compiled ahead is what is judged.
    return check.check(stage, dtype=dtype, most=_most(stage), seed=OWN_SEED)


def _registered(stage: Stage) -> bool:
    """Whether this is the stage that its id names: other processes, as the one that ncu watches, know ids only."""
    try:
        return registry.stage(stage.id).kernel is stage.kernel
    except registry.StageError:
        return False


def _is_for(stage: Stage, problem: Problem) -> bool:
    """Whether the stage computes this op, and of fused layers these two."""
    return stage.op == problem.op and (not isinstance(problem, Fused) or stage.path == problem.kind)


def main_problems(todo: Sequence[Stage], quick: bool = False) -> tuple[Problem, ...]:
    """What these stages are studied on where nothing else is asked for. quick: with few rows, and one image."""
    found: dict[Problem, None] = {}
    for stage in todo:
        for one in LAYERS.get((stage.op, stage.path), (PROBLEM,)):
            if isinstance(one, DepthwiseConv1d):
                one = QUICK_PROBLEM if quick else one
            elif quick:
                one = resized(one, N=1)
            found[one] = None
    return tuple(found)


def steps(todo: Sequence[Stage], shapes: int | Sequence[Problem], mode: str, quick: bool = False) -> int:
    """How often a study of these stages on so many problems, or on these, tells its progress."""
    if not isinstance(shapes, int):
        pairs = [(stage, shape) for shape in shapes for stage in todo if _is_for(stage, shape)]
        checked = len({stage.id for stage, _ in pairs})
        here = [(stage, shape) for stage, shape in pairs if stage.supports(shape)]
        counters_read = not quick and any(isinstance(shape, DepthwiseConv1d) for shape in shapes)
        timed = len(here) + len({(stage.path, shape) for stage, shape in here})
        return checked + len(here) + (2 + timed + counters_read if mode == "gpu" else 0)
    paths = len({stage.path for stage in todo})
    counted = len(todo) * (1 + shapes)
    return counted if mode != "gpu" else 2 + counted + shapes * (len(todo) + paths) + (not quick)


def _judged(judge: Callable[..., Any], stage: Stage, dtype: str) -> str:
    """ "" if the judge passes the stage on rows of this dtype, else its verdict in one line."""
    verdict = judge(stage) if dtype == "float32" else judge(stage, dtype=dtype)
    if verdict.passed:
        return ""
    lines = [line.strip() for line in str(verdict).splitlines() if line.strip()]
    # The first line says how many problems failed, the first finding what is wrong.
    found = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
    return "; ".join([*lines[:1], *found[:1]]) or "rejected"


def _row(stage: Stage, shape: Problem, small: Problem, wrong: str, counted: int, differs: str) -> Row:
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
    shape: Problem,
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
            roofline.points([measured], report.roof_of(shape.op, ceilings))
        except roofline.RooflineError as error:
            made[i] = replace(made[i], passed=False, verdict=str(error))
        made[i] = replace(made[i], measured=measured, source="measured")
    shown = {"path": here[0].path, "shape": records.describe_problem(shape), "dtype": shape.dtype}
    listed = [one.to_dict() | shown for one in ran]
    return made, listed


def measurement(
    stage: Stage,
    shape: Problem,
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
        kernel_sha256=stage.digest,
        ptx_sha256=ahead.code_digest(stage, shape),
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
    from dwlab.gpu import target

    if args.record or args.report:
        if target.mode != "gpu" and args.record:
            raise StudyError(
                f"--record needs a GPU: nothing is measured in simulated mode ({target.reason}). "
                "What others measured: python -m dwlab records"
            )
        if args.report:
            _make_folder(args.report)
        if args.record:
            writing.check_writable(args.record)
    shapes = [layers.problem(text) for text in args.problem] if args.problem else None
    for one in shapes or ():
        if one.compulsory_bytes() > MOST_BYTES:
            raise StudyError(f"{one} has {one.compulsory_bytes() / 1e9:,.0f} GB: no GPU holds it; give smaller sizes")
    todo = registry.stages(args.op, args.path)
    # A record that cannot be read is named, and the others serve.
    runs = [] if target.mode == "gpu" else records.load_runs(on_error=lambda e: print(f"dwlab: {e}", file=sys.stderr))
    asked = shapes or main_problems(todo, args.quick and target.mode == "gpu")
    with terminal.progress(steps(todo, asked, target.mode, args.quick)) as progress:
        made = study(problem=shapes, quick=args.quick, mode=target.mode, chosen=todo, runs=runs, progress=progress)
    print(json.dumps(made.to_dict(), indent=1, ensure_ascii=False) if args.json else made.table(terminal.width()))
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
