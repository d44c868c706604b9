"""A study's result: a row a stage and problem, as text, JSON and a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dwlab import records
from dwlab.gpu.machine import Machine
from dwlab.measure import counters
from dwlab.records import Measurement, writing
from dwlab.text import tabular, terminal
from dwlab.text.tabular import Col


class StudyError(RuntimeError):
    """A study that cannot be made as it is wanted; the message says what to do."""


@dataclass(frozen=True)
class Row:
    """One stage on one problem.

    passed: checked right, counted as predicted, right at the measured shape and under its ceilings; verdict: why not.
    flops: of the taps inside the signal. intensity: flops / compulsory bytes. predicted_bytes: 32 bytes for each
    sector that the stage's formula predicts for its warps' requests; intensity_requested: flops / predicted_bytes.
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
    intensity_requested: float
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
    """A study's rows, with the machine that they were measured on (None if nothing was) and the baselines tried.

    counters: the hardware's counters (dwlab.measure.counters); uncounted: why there are none on a GPU.
    """

    mode: str
    rows: tuple[Row, ...]
    machine: Machine | None = None
    environment: dict[str, Any] | None = None
    baselines: tuple[dict[str, Any], ...] = ()
    counters: tuple[dict[str, Any], ...] = ()
    uncounted: str = ""

    @property
    def passed(self) -> bool:
        """Whether every stage is right."""
        return all(row.passed for row in self.rows)

    def measurements(self) -> list[Measurement]:
        """Measurements of this run, of stages that are right."""
        return [row.measured for row in self.rows if row.measured and row.passed and row.source == "measured"]

    def slower(self, earlier: records.Record, tolerance: float) -> list[str]:
        """A line for each stage whose median exceeds an earlier run's on the same problem by more than that part.

        Raises StudyError where the two have no GPU, or no stage and problem, in common.
        """
        gpu = self.machine.name if self.machine else None
        if gpu != earlier.gpu:
            raise StudyError(
                f"{earlier.file} is of {earlier.gpu}, not of {gpu or 'a GPU'}: times compare on one GPU only"
            )
        before = {(m.op, m.path, m.stage, records.shape_text(m.problem), m.dtype): m for m in earlier.measurements}
        both = [
            (now, before[key])
            for now in self.measurements()
            if (key := (now.op, now.path, now.stage, records.shape_text(now.problem), now.dtype)) in before
        ]
        if not both:
            raise StudyError(f"{earlier.file} has no stage and problem of this study: nothing is compared")
        return [
            f"{now.op}/{now.path}/{now.stage} {records.shape_text(now.problem)} {now.dtype}: "
            f"{now.time_us:,.1f} µs, {now.time_us / was.time_us - 1:+.1%} of {was.time_us:,.1f} µs"
            for now, was in both
            if now.time_us > (1 + tolerance) * was.time_us
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "mode": self.mode,
            "passed": self.passed,
            "environment": self.environment,
            "machine": self.machine.to_dict() if self.machine else None,
            "ceilings": self.machine.ceilings.to_dict() if self.machine and self.machine.ceilings else None,
            "peers": list(self.baselines),
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
            peers=self.baselines,
            machine=self.machine.to_dict(),
            counters=self.counters,
            **more,
        )

    def _columns(self) -> list[Col]:
        recorded = any(row.measured for row in self.rows) and self.mode != "gpu"  # not of this machine: see below

        def timed(head: str, name: str, show: Callable[[Any], str]) -> Col:
            return Col(head, lambda row: getattr(row.measured, name) if row.measured else None, show)

        return [
            Col("stage", "stage", left=True),
            Col("check", lambda row: "right" if row.passed else "WRONG", left=True),
            timed("recorded µs" if recorded else "time µs", "time_us", tabular.rounded),
            timed("eff. GB/s", "effective_gbps", tabular.rounded),
            timed("of copy", "fraction_of_copy", tabular.percent),
            timed("× naive", "speedup_vs_naive", tabular.times),
            timed("× baseline", "speedup_vs_peer", tabular.times),
            Col("FLOP/B", "intensity", "{:.3g}".format),
            Col("FLOP/B requested", "intensity_requested", "{:.3g}".format),
            Col("predicted MB", lambda row: row.predicted_bytes / 1e6, "{:,.1f}".format),
            Col("counted kB", lambda row: row.counted_bytes / 1e3, "{:,.1f}".format),
            Col("formula kB", lambda row: row.counted_prediction / 1e3, "{:,.1f}".format),
        ]

    def _groups(self) -> dict[str, list[Row]]:
        """Rows of one path and problem belong to one table: its title -> the rows."""
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            title = f"{row.op}/{row.path}  {records.shape_text(row.problem)}  {row.dtype}"
            groups.setdefault(title, []).append(row)
        return groups

    def notes(self, rows: Sequence[Row] | None = None) -> list[str]:
        """Notes on the numbers: where they were measured, on which problem they were counted, and what failed."""
        rows = self.rows if rows is None else rows
        found = []
        counted = {records.shape_text(row.counted_problem) for row in rows}
        found.append(
            "FLOP/B: FLOP for each compulsory byte, and for each byte that the warps request. predicted: what they "
            "request, by the stage's formula. counted: by the interpreter, with the formula beside it, at "
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
            found.append(f"baseline: {', '.join(named)}.")
        found += [f"{row.id}: {row.verdict}" for row in rows if not row.passed]
        return found

    def table(self, columns: int | None = None) -> str:
        """The study as text, a table for each path and problem, in lines of `columns` characters (None: any)."""
        shown, parts = self._columns(), []
        for title, rows in self._groups().items():
            text = terminal.table(*tabular.cells(shown, rows), columns=columns, cut=0, spare=(8, 9, 7, 3, 11, 10, 5))
            parts += [title, text, *(terminal.wrapped(note, columns) for note in self.notes(rows)), ""]
        if self.counters:
            parts += ["counted by the hardware, beside each stage's formula", counters.table(self.counters), ""]
        elif self.uncounted:
            parts += [f"No hardware counters: {self.uncounted}.", ""]
        return "\n".join(parts).rstrip()

    def __str__(self) -> str:
        return self.table()
