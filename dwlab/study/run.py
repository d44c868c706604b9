"""The study itself: every stage checked, counted, timed. `study`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dwlab import problems, records, report
from dwlab.compiler import precompile as ahead
from dwlab.judge import check, formulas
from dwlab.kernels import registry
from dwlab.kernels.registry import Stage
from dwlab.measure import baselines
from dwlab.measure.baselines import Baseline
from dwlab.measure.counters import CountersError
from dwlab.measure.timing import Timing
from dwlab.model import roofline
from dwlab.problems import DepthwiseConv1d, Problem
from dwlab.problems.cases import OWN_SEED
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise, SparsePointwise
from dwlab.records import Measurement
from dwlab.study.bench import GpuBench, WrongResult
from dwlab.study.result import Row, Study, StudyError
from dwlab.study.sizes import counted_problem, resized

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
LAYERS["sparse", "forward"] = tuple(
    SparsePointwise(32, 144, 24, 56, 56, bias=True, pattern=form) for form in ("2:4", "8:2:16")
)
"""Op and path -> the layers that a study takes where it is given none, in both layouts; sparse ones in two patterns."""

CHECKED_ON = 6  # problems, of kernels that are compiled anew for each
MOST_PRODUCTS = 2**30  # L*K of a problem: the formulas look at each warp and tap of a row


def count(stage: Stage, problem: Problem) -> tuple[int, str]:
    """The interpreter's counts of a stage on a problem: global bytes moved, and how an exact formula differs.

    The second is "" where the formula is an estimate or agrees; it says so where the interpreter cannot run the kernel.
    """
    from dwlab import simt
    from dwlab.kernels import traffic

    try:
        found = formulas.Comparison(stage.id, problem, stage.traffic(problem), formulas.count(stage, problem))
    except simt.SimtError as error:
        return 0, f"it cannot be counted: {error}"
    differ = [
        f"{name.replace('_', ' ')} {counted:,} counted, {expected:,} predicted"
        for name in traffic.COUNTS
        if (counted := getattr(found.counted, name)) != (expected := getattr(found.predicted, name))
    ]
    return found.counted.bytes_moved, "; ".join(differ) if found.predicted.exact else ""


@dataclass(frozen=True)
class Checks:
    """Checks of a study.

    judge: of a stage, and a dtype where that is not float32: a verdict, as `dwlab.check` gives it; the project's own if
    None. counter: of a stage and a problem, as `count`. hardware: whether the GPU's own counters are read too.
    """

    judge: Callable[..., Any] | None = None
    counter: Callable[[Stage, Problem], tuple[int, str]] = count
    hardware: bool = True


def study(
    op: str | None = None,
    path: str | None = None,
    problem: Problem | Sequence[Problem] | None = None,
    quick: bool = False,
    *,
    stages: Sequence[Stage] | None = None,
    bench: GpuBench | None = None,
    checks: Checks = Checks(),  # noqa: B008 - it is frozen
    runs: Sequence[records.Record] | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Study:
    """Every stage of an op and path, on one problem or several; each problem with the stages of its op.

    problem: the paper's and, for each op and path of layers, LAYERS if None; with ``quick`` smaller ones. quick: fewer
    rounds, no baselines. stages: these in place of an op's and path's. bench: what times them; if None the present GPU
    in gpu mode, and nothing in simulated mode. runs: the records to show then. progress: told what is next. Raises
    StageError for an op or path that does not exist, OutOfMemory for a problem too large for the GPU.
    """
    from dwlab.gpu import target

    mode = "gpu" if bench is not None else target.mode
    todo = registry.stages(op, path) if stages is None else tuple(stages)
    shapes = main_problems(todo, quick and mode == "gpu") if problem is None else _shapes(problem, todo)
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
        _compile_ahead(todo, shapes, checks.judge is None)
    verdicts = _verdicts(todo, shapes, checks.judge or _judge, progress)
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
                counted, differs = checks.counter(stage, small)
                made.append(_row(stage, shape, small, verdicts[stage.id, shape.dtype], counted, differs))
            if here and bench is None:
                rows += [_with_record(row, stage, runs) for row, stage in zip(made, here, strict=True)]
            elif here:
                made, ran = _timed(bench, here, made, shape, quick, progress)
                rows += made
                tried += ran
    if bench is None:
        return Study(mode, tuple(rows))
    environment = bench.environment()
    rows = [
        replace(row, measured=replace(row.measured, date=environment["date"])) if row.measured else row for row in rows
    ]
    why = "left out for --quick" if quick else "" if checks.hardware else "switched off"
    right = [stage for stage in todo if all(row.passed for row in rows if row.id == stage.id)]
    found, why = ([], why) if why else _hardware(bench, right, shapes, progress)
    return Study(mode, tuple(rows), bench.machine, environment, tuple(tried), tuple(found), why)


def _shapes(problem: Problem | Sequence[Problem], todo: Sequence[Stage]) -> tuple[Problem, ...]:
    """The problems that are given. Raises StudyError for what is none, and for one that no stage computes."""
    shapes = (problem,) if isinstance(problem, Problem) else tuple(problem)
    if not shapes or not all(isinstance(shape, Problem) for shape in shapes):
        raise StudyError(f"{problem!r} is no problem, nor a sequence of some: give a dwlab.DepthwiseConv1d")
    for shape in shapes:
        if not any(_is_for(stage, shape) for stage in todo):
            raise StudyError(f"{shape} is a problem of {shape.op}, which none of these stages computes")
    return shapes


def _verdicts(
    todo: Sequence[Stage], shapes: Sequence[Problem], judge: Callable[..., Any], progress: Callable[[str], None]
) -> dict[tuple[str, str], str]:
    """(stage's id, dtype) -> "" if the judge passes the stage on rows of this dtype, else its verdict in one line."""
    found = {}
    for stage in todo:
        progress(f"check {stage.name}")
        for dtype in dict.fromkeys(shape.dtype for shape in shapes if _is_for(stage, shape)):
            if dtype in stage.dtypes:
                verdict = judge(stage) if dtype == "float32" else judge(stage, dtype=dtype)
                lines = [line.strip() for line in str(verdict).splitlines() if line.strip()]
                # The first line says how many problems failed, the first finding what is wrong.
                wrong = [line.removeprefix("- ") for line in lines if line.startswith("- ")]
                text = "; ".join([*lines[:1], *wrong[:1]]) or "rejected"
                found[stage.id, dtype] = "" if verdict.passed else text
    return found


def _hardware(
    bench: GpuBench, right: Sequence[Stage], shapes: Sequence[Problem], progress: Callable[[str], None]
) -> tuple[list[dict[str, Any]], str]:
    """The GPU's counts of right stages, at the main problem and at the small one; and why it does not, if so."""
    # The profiler's process finds stages by their ids, and reads problems of depthwise1d alone.
    main = next((shape for shape in shapes if isinstance(shape, DepthwiseConv1d)), None)
    if main is None:
        return [], "they are read for depthwise1d only"
    todo = [stage for stage in right if stage.op == "depthwise1d" and _registered(stage) and stage.supports(main)]
    if not todo:
        return [], ""
    progress("hardware counters")
    try:
        return [one.to_dict() for one in bench.counters(todo, (main, counted_problem(main)))], ""
    except CountersError as error:
        return [], str(error)


def _compile_ahead(todo: Sequence[Stage], shapes: Sequence[Problem], judging: bool) -> None:
    """Compiles what a study will launch on the GPU, several kernels at a time: one after the other they take far
    longer than all that is checked and timed with them. judging: the judge's problems too.
    """
    from dwlab.gpu import target

    if target.mode != "gpu":
        return
    wanted: list[tuple[Stage, Problem]] = []
    for stage in filter(_registered, todo):  # the processes find stages by their ids
        here = [shape for shape in shapes if _is_for(stage, shape)]
        wanted += [(stage, shape) for shape in here if stage.supports(shape)]
        for dtype in dict.fromkeys(shape.dtype for shape in here if judging):
            wanted += [(stage, problem) for problem in check.checked_on(stage, dtype, _most(stage), OWN_SEED)]
    ahead.compile_for(wanted)


def _most(stage: Stage) -> int | None:
    """Number of problems that a study judges a stage on before it times it: all, but of kernels that are compiled anew
    for each, some seconds long. Tests judge these on all, and `Prepared.check` where they are timed.
    """
    return CHECKED_ON if getattr(stage.kernel, "sized", False) else None


@functools.cache
def _judge(stage: Stage, dtype: str = "float32") -> check.Verdict:
    """Once a process. One seed: what is compiled ahead is what is checked."""
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
    """Problems that these stages are studied on where none is given. quick: with few rows, and one image."""
    found: dict[Problem, None] = {}
    for stage in todo:
        for one in LAYERS.get((stage.op, stage.path), (PROBLEM,)):
            if isinstance(one, DepthwiseConv1d):
                one = QUICK_PROBLEM if quick else one
            elif quick:
                one = resized(one, N=1)
            found[one] = None
    return tuple(found)


def steps(todo: Sequence[Stage], shapes: Sequence[Problem], mode: str, quick: bool = False) -> int:
    """How often a study of these stages on these problems tells its progress."""
    pairs = [(stage, shape) for shape in shapes for stage in todo if _is_for(stage, shape)]
    here = [(stage, shape) for stage, shape in pairs if stage.supports(shape)]
    count = len({stage.id for stage, _ in pairs}) + len(here)
    if mode != "gpu":
        return count
    counters_read = not quick and any(isinstance(shape, DepthwiseConv1d) for shape in shapes)
    return 2 + count + len(here) + len({(stage.path, shape) for stage, shape in here}) + counters_read


def _row(stage: Stage, shape: Problem, small: Problem, wrong: str, counted: int, differs: str) -> Row:
    size, requested = shape.compulsory_bytes(stage.path), stage.traffic(shape).bytes_moved
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
        predicted_bytes=requested,
        intensity_requested=shape.flops_of(stage.path) / requested,
        counted_problem=records.describe_problem(small),
        counted_bytes=counted,
        counted_prediction=stage.traffic(small).bytes_moved,
    )


def _with_record(row: Row, stage: Stage, runs: Sequence[records.Record]) -> Row:
    """The row with its newest recorded measurement, if there is one; source says if its kernel was another."""
    for run in reversed(runs):
        alike = [one for one in run.measurements if one.dtype == row.dtype]
        found = records.best(row.op, row.path, row.stage, row.problem, rows=alike)
        if found:
            same = stage.same_kernel(found.kernel_sha256, found.problem, found.dtype)
            older = "" if same else f" (of an earlier {row.stage} kernel)"
            return replace(row, measured=found, source=f"recorded on {run.where()}{older}")
    return row


def _timed(
    bench: GpuBench,
    here: Sequence[Stage],
    rows: Sequence[Row],
    shape: Problem,
    quick: bool,
    progress: Callable[[str], None],
) -> tuple[list[Row], list[dict[str, Any]]]:
    """The rows with their measurements, and the baselines tried."""
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
        progress("baselines")
        ran = [] if quick else prepared.baselines()
    fastest = baselines.fastest(ran)
    naive_us = next((timed.median_us for i, timed in times.items() if here[i].name == "naive"), None)
    for i, timed in times.items():
        more = {"speedup_vs_naive": naive_us / timed.median_us if naive_us else None}
        more["predicted_bytes"] = made[i].predicted_bytes
        measured = measurement(here[i], shape, timed, ceilings.copy_gbps, bench.machine.name, **more)
        measured = with_baseline(measured, fastest)
        try:
            roofline.points([measured], report.roof_of(shape.op, ceilings))
        except roofline.RooflineError as error:
            made[i] = replace(made[i], passed=False, verdict=str(error))
        made[i] = replace(made[i], measured=measured, source="measured")
    shown = {"path": here[0].path, "shape": records.describe_problem(shape), "dtype": shape.dtype}
    listed = [one.to_dict() | shown for one in ran]
    return made, listed


def measurement(
    stage: Stage, shape: Problem, timed: Timing, copy_gbps: float, gpu: str = "", note: str | None = None, **more: Any
) -> Measurement:
    """A record's row from a timing, without its baseline. The date is the record's, empty until it is written."""
    size, flops = shape.compulsory_bytes(stage.path), shape.flops_of(stage.path)
    gbps = size / timed.median_us / 1e3
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
        compulsory_bytes=size,
        effective_gbps=gbps,
        copy_gbps=copy_gbps,
        fraction_of_copy=gbps / copy_gbps,
        flops=flops,
        intensity=flops / size,
        order=stage.order,
        kernel_sha256=stage.digest,
        note=timed.note if note is None else note,
        **more,
    )


def with_baseline(row: Measurement, baseline: Baseline | None) -> Measurement:
    """The row with its fastest baseline."""
    if baseline is None or baseline.time is None:
        return row
    us = baseline.time.median_us
    return replace(row, peer=baseline.name, peer_time_us=us, speedup_vs_peer=us / row.time_us)
