"""A bench for stages: a problem's buffers on the GPU, checked before and after. `GpuBench`."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from dwlab import problems, records
from dwlab.compiler import precompile
from dwlab.gpu import provenance
from dwlab.gpu.machine import Machine
from dwlab.kernels.registry import Stage
from dwlab.measure import baselines, counters, device, layer_baselines, timing
from dwlab.measure.baselines import Baseline
from dwlab.measure.counters import Counters
from dwlab.measure.timing import Timing
from dwlab.problems import DepthwiseConv1d, Problem
from dwlab.study.sizes import OutOfMemory, check_memory, is_out_of_memory, memory_message
from dwlab.study.spot_check import spot_check

TIMING = {"rounds": 15, "min_seconds": 0.2, "most_seconds": 1.5}
QUICK_TIMING = {"rounds": 5, "min_seconds": 0.05, "most_seconds": 0.5}
FEW_SETS = 8  # of buffers for a bench with `few`, where even the most would lie in the L2
MOVED_ON = 2**26  # bytes of a problem from which fresh inputs are the last ones moved on


class WrongResult(RuntimeError):
    """A kernel whose output at the measured shape is wrong."""


class GpuBench:
    """The present GPU with its measured ceilings. Raises TimingError in simulated mode.

    clock, machine: another clock, and a machine whose ceilings are known, in place of the GPU's own. how: what
    `timing.time_launches` takes, in place of a study's. alone: a lock of processes that share the GPU, held while it is
    used. compiled: whether torch.compile is among the baselines. few: two inputs are made for each problem,
    and most buffers have copies of one, as the host takes long to make each its own; of small ones there are FEW_SETS.
    """

    def __init__(
        self,
        *,
        quick: bool = False,
        clock: timing.Clock | None = None,
        machine: Machine | None = None,
        how: Mapping[str, Any] | None = None,
        alone: AbstractContextManager[Any] | None = None,
        compiled: bool = True,
        few: bool = False,
    ) -> None:
        self.alone, self.compiled, self.few = alone or nullcontext(), compiled, few
        self.clock = clock or timing.DeviceClock()
        self.machine = machine or device.measure(quick=quick, clock=self.clock)
        self.how = how or (QUICK_TIMING if quick else TIMING)

    def environment(self) -> dict[str, Any]:
        return provenance.environment(self.machine)

    def counters(self, todo: Sequence[Stage], shapes: Sequence[Problem]) -> list[Counters]:
        return counters.measure(todo, shapes)

    @contextmanager
    def prepare(
        self, problem: Problem, path: str, given: Sequence[dict[str, np.ndarray]] = (), sets: int = 0
    ) -> Iterator[_OnGpu]:
        """given: two inputs, in place of the problem's own. sets: of buffers, in place of so many as exceed the L2."""
        from dwlab.target import cuda

        size = problem.compulsory_bytes(path)
        if not sets:
            sets = timing.sets_for(size, self.machine.l2_bytes or 0)
            if self.few and sets * size < 2 * (self.machine.l2_bytes or 0):
                sets = min(sets, FEW_SETS)
        free = cuda.current_context().get_memory_info()[0]
        check_memory(problem, path, sets, free)
        try:
            prepared = _OnGpu(self, problem, path, sets, given)
        except Exception as error:
            if is_out_of_memory(error):
                raise OutOfMemory(memory_message(problem, path, sets, free)) from error
            raise
        try:
            yield prepared
        finally:
            prepared.close()


def times_of(stages: Sequence[Stage], problem: Problem, bench: GpuBench | None = None) -> dict[str, float]:
    """id -> median µs of stages on a problem: measured by a bench; without one those recorded, of the GPU shown."""
    if bench is None:
        found = {one.id: records.best(one.op, one.path, one.name, problem) for one in stages}
        return {id: row.time_us for id, row in found.items() if row}
    precompile.compile_for((one, problem) for one in stages)
    times: dict[str, float] = {}
    for path in dict.fromkeys(one.path for one in stages):
        with bench.prepare(problem, path) as prepared:
            times |= {one.id: prepared.time(one).median_us for one in stages if one.path == path}
    return times


class _OnGpu:
    """A problem's buffers on the GPU: several sets where one would fit the L2.

    A stage that is checked and timed may be several that are launched as one: what has `id`, `run` and `starter`.
    """

    def __init__(
        self, bench: GpuBench, problem: Problem, path: str, sets: int, given: Sequence[dict[str, np.ndarray]] = ()
    ) -> None:
        from dwlab.target import cuda

        self.bench, self.problem, self.path, self.seed, self.given = bench, problem, path, 0, list(given)
        self.cold = timing.cache_state(problem.compulsory_bytes(path), bench.machine.l2_bytes or 0, sets)
        self.sets: list[dict[str, Any]] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.others: dict[str, np.ndarray] = {}
        self.exact: dict[tuple[int, str], Any] = {}
        shapes = problem.shapes(path)
        # Pages of the host that are touched once serve for every check.
        self.host = {name: problem.nans(name, path) for name in problem.outputs(path)}
        kinds = {name: problem.storage_of(name) for name in problem.arrays(path)}
        for _ in range(sets):
            self.sets.append({name: cuda.device_array(shapes[name], kinds[name]) for name in kinds})
        self.refresh()

    def refresh(self) -> None:
        """Fresh inputs in every set; those of the first two stay on the host, for checks."""
        from dwlab.target import cuda

        for i, arrays in enumerate(self.sets):
            copied = i > 1 and self.bench.few
            if not copied:
                self.seed += 1
                made = self.given[(self.seed - 1) % 2] if self.given else self._fresh()
            with self.bench.alone:
                for name, values in made.items():
                    arrays[name].copy_to_device(self.sets[1][name] if copied else values)
                # The stream that is timed does not wait for the default one.
                cuda.synchronize()
            if i == 0:
                self.inputs = made
            elif i == 1:
                self.others = made
        self.exact.clear()

    def swap(self) -> None:
        """Other inputs for the next check: the second set comes first, or, where there is one alone, fresh ones."""
        if len(self.sets) == 1:
            return self.refresh()
        self.sets[:2] = self.sets[1::-1]
        self.inputs, self.others = self.others, self.inputs

    def _fresh(self) -> dict[str, np.ndarray]:
        """Inputs that differ from the last ones everywhere. Large ones are the last, each moved on by chance: random
        numbers take longer to make than everything else here. Places stay: moved on, they would name no columns.
        """
        if not self.inputs or self.problem.compulsory_bytes(self.path) < MOVED_ON:
            return self.problem.inputs(self.path, seed=self.seed)
        rng = np.random.default_rng(self.seed)
        return {
            name: values
            if name in self.problem.places
            else np.roll(values.reshape(-1), int(rng.integers(1, max(2, values.size)))).reshape(values.shape)
            for name, values in self.inputs.items()
        }

    def check(self, stage: Stage) -> None:
        """Runs the stage once on poisoned outputs. Raises WrongResult."""
        from dwlab.target import cuda

        arrays = self.sets[0]
        first: dict[str, np.ndarray] = {}
        # Whole numbers have no NaN: they are written if they come out the same, whatever was there before.
        twice = any(values.dtype.kind == "i" for values in self.host.values())
        for poison in POISONS[: 1 + twice]:
            with self.bench.alone:
                for name in self.host:
                    _poison(arrays[name], poison)
                stage.run(self.problem, arrays)
                cuda.synchronize()
                for name, values in self.host.items():
                    arrays[name].copy_to_host(values)
            for name, values in self.host.items():
                wrong = self.wrong(name, values)
                differ = np.count_nonzero(first.get(name, values) != values) if twice else 0
                if differ:
                    wrong = f"{differ:,} of {values.size:,} elements of {name} were not written, or differ between runs"
                if wrong:
                    raise WrongResult(f"{stage.id} at {self.problem}: {wrong}")
                if twice:
                    first[name] = values.copy()

    def time(self, stage: Stage) -> Timing:
        self.check(stage)
        timed = self.clocked(stage)
        self.swap() if self.bench.few else self.refresh()
        self.check(stage)
        return timed

    def wrong(self, name: str, values: np.ndarray, relative: float | None = None) -> str:
        """The error of an output for the first set's inputs, as `spot_check` has it; "" if nothing."""
        known = self.exact.setdefault((id(self.inputs), name), {})
        return spot_check(self.problem, self.path, self.inputs, name, values, relative, known)

    def clocked(self, stage: Stage) -> Timing:
        """Times it, without a check."""
        with self.bench.alone:
            launches = [stage.starter(self.problem, arrays) for arrays in self.sets]
            return timing.time_launches(launches, cold=self.cold, clock=self.bench.clock, **self.bench.how)

    def baselines(self, only: Sequence[str] = ()) -> list[Baseline]:
        """PyTorch's ways. only: of these kinds (baselines.kind), of rows."""
        if self.problem.op == "sparse":
            return []  # PyTorch's layers take dense filters
        if not isinstance(self.problem, DepthwiseConv1d):
            return self._layer_baselines()

        def verify(tensors: dict[str, Any]) -> str:
            for name, tensor in tensors.items():
                values = tensor.contiguous().float().cpu().numpy()
                # Sums over the batch are long, and a library may take them in any order. In 16 bits it rounds the
                # filters and every result, dw too.
                relative = {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(self.problem.dtype)
                if relative is None:
                    relative = 1e-4 if name == "dw" else 1e-5
                wrong = self.wrong(name, values, relative)
                if wrong:
                    return wrong
            return ""

        with self.bench.alone:
            how = {"cold": self.cold, "only": only, "compiled": self.bench.compiled, **self.bench.how}
            return baselines.measure(self.problem, self.path, self.sets, verify, **how)

    def _layer_baselines(self) -> list[Baseline]:
        theirs, found = layer_baselines.baseline_problem(self.problem), []
        if theirs != self.problem:  # stored otherwise: in buffers of their own
            if not baselines.available():
                return []
            with self.bench.prepare(theirs, self.path) as prepared:
                found = prepared.baselines()
            if self.problem not in layer_baselines.solved(self.problem):
                return found

        def verify(tensors: dict[str, Any]) -> str:
            values = tensors["y"].contiguous().float().cpu().numpy()
            exact = self.problem.dtype == "int8"
            return self.wrong("y", values, None if exact else layer_baselines.relative_error(self.problem.dtype))

        how = {"cold": self.cold, "compiled": self.bench.compiled, **self.bench.how}
        with self.bench.alone:
            return found + layer_baselines.measure(self.problem, self.sets, verify, **how)

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


POISONS = (np.int8(-86), np.int8(85))
"""Values of int8 outputs before a kernel runs, one after the other."""


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
