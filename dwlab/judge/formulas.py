"""A stage's traffic formula compared with the interpreter's counts: all numbers are equal where it is exact."""

from __future__ import annotations

from dataclasses import dataclass

from dwlab import simt
from dwlab.kernels import registry
from dwlab.kernels.registry import Stage
from dwlab.kernels.traffic import COUNTS, Traffic, of_totals
from dwlab.problems import SMALL, DepthwiseConv1d
from dwlab.text import tabular


@dataclass(frozen=True)
class Comparison:
    """A stage's traffic on a problem: what its formula predicts and what the interpreter counts.

    `agrees`: for an exact formula, whether all numbers are equal; an estimate need not be.
    """

    stage: str
    problem: DepthwiseConv1d
    predicted: Traffic
    counted: Traffic

    @property
    def agrees(self) -> bool:
        """Whether the formula is an estimate, or right in every number."""
        return not self.differences

    @property
    def differences(self) -> tuple[str, ...]:
        """The numbers in which an exact formula is wrong, as text."""
        if not self.predicted.exact:
            return ()
        return tuple(f"{name}: {p} predicted, {c} counted" for name, p, c in self._rows() if p != c)

    def _rows(self) -> list[tuple[str, int, int]]:
        rows = [
            (name.replace("_", " "), getattr(self.predicted, name), getattr(self.counted, name))
            for name in (*COUNTS, "bytes_moved")
        ]
        return [row for row in rows if not row[0].startswith("atomic") or any(row[1:])]  # few kernels have atomics

    def raise_if_different(self) -> Comparison:
        """Raises AssertionError if an exact formula is wrong; otherwise returns itself."""
        if not self.agrees:
            raise AssertionError(f"{self.stage} on {self.problem}: {'; '.join(self.differences)}")
        return self

    def __str__(self) -> str:
        claim = "exact" if self.predicted.exact else "estimate"
        lines = [f"{self.stage} on {self.problem}", f"{'':16}{f'predicted ({claim})':>22}{'counted':>16}"]
        lines += [f"{name:16}{p:>22,}{c:>16,}" for name, p, c in self._rows()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [(name, f"{p:,}", f"{c:,}") for name, p, c in self._rows()]
        claim = "exact" if self.predicted.exact else "estimate"
        return tabular.as_html(("", f"predicted ({claim})", "counted"), rows, f"{self.stage} on {self.problem}")


def compare(stage: Stage | str, problem: DepthwiseConv1d = SMALL) -> Comparison:
    """A stage's prediction beside the interpreter's count, in either mode.

    The problem is interpreted thread by thread, so keep it to some 100,000 outputs. Raises StageError for an unknown
    id, and what `count` raises.
    """
    chosen = registry.stage(stage) if isinstance(stage, str) else stage
    return Comparison(chosen.id, problem, chosen.traffic(problem), count(chosen, problem))


def count(stage: Stage, problem: DepthwiseConv1d) -> Traffic:
    """The interpreter's counts of a stage on a problem.

    Raises what `simt.xray` raises for a kernel that it cannot run, and simt.HazardError for one with a hazard: accesses
    beyond an array are not counted.
    """
    how, args = stage.launch(problem), stage.example(problem)
    kernel = stage.kernel_for(problem)
    report = simt.xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes)
    report.raise_hazards()
    return of_totals(report.totals)
