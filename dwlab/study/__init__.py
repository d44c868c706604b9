"""The study: every stage checked, its traffic predicted and counted, and on a GPU timed. ``python -m dwlab study``.

Check, time, check again on fresh inputs. Effective bandwidth counts a problem's compulsory bytes, so a stage that moves
more never looks faster. The ceilings are measured in the same run as the stages. Without a GPU the columns of time hold
what was recorded, labelled, or nothing. A stage fails if the judge rejects it, if an exact traffic formula differs from
the count, if its output at the measured shape is wrong, or if its point lies above a ceiling.
"""

from dwlab.study.bench import GpuBench, WrongResult, times_of
from dwlab.study.result import Row, Study, StudyError
from dwlab.study.run import (
    LAYERS,
    PROBLEM,
    QUICK_PROBLEM,
    Checks,
    count,
    main_problems,
    measurement,
    steps,
    study,
    with_baseline,
)
from dwlab.study.sizes import OutOfMemory, check_memory, counted_problem, memory_needed, smaller
from dwlab.study.spot_check import Excerpt, excerpt, spot_check

__all__ = [
    "LAYERS", "PROBLEM", "QUICK_PROBLEM", "Checks", "Excerpt", "GpuBench", "OutOfMemory", "Row",
    "Study", "StudyError", "WrongResult", "check_memory", "count", "counted_problem", "excerpt", "main_problems",
    "measurement", "memory_needed", "smaller", "spot_check", "steps", "study", "times_of", "with_baseline",
]  # fmt: skip
