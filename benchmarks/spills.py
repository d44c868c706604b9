"""Registers and spills of the kernels that run image networks: ``python benchmarks/spills.py``. Needs no GPU.

The layers and pairs are those of record_layers.py, largest shares first, each with the last stage that takes it. Every
distinct kernel is compiled once (dwlab.compiler.inspect), one at a time, until the time is over: some 5 to 15 s each.
Prints registers, bytes that a thread spills (stored and loaded, as they stand in the code), shared memory and blocks of
a multiprocessor. Exit status 1 if a kernel spills, 2 if there is no compiler or nothing to compile.

examples: spills.py --op pointwise --dtype float32 --batch 32 --last 2
          spills.py --op fused/dwpw --seconds 600
          spills.py --list             what would be compiled, in which order
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from record_layers import NETWORKS, OPS, Problem, candidates, plan, variant
from recording import Parser, above, at_least

from dwlab import report
from dwlab.compiler import inspect
from dwlab.compiler.inspect import Compiled, InspectError
from dwlab.kernels.registry import Stage
from dwlab.problems.layers import DTYPES, LAYOUTS


def kernels(
    ops: Sequence[str], dtypes: Sequence[str], names: Sequence[str], batches: Sequence[int], layout: str, last: int
) -> Iterator[tuple[Stage, Problem]]:
    """Each distinct kernel by its stage and the first problem that it is for; the last so many stages of a problem."""
    seen: set[Any] = set()
    for group in plan(ops, dtypes, names):
        for batch in batches:
            problem = variant(group.problem, batch, layout)
            for stage in candidates(problem, last):
                kernel = stage.kernel_for(problem)
                if kernel not in seen:
                    seen.add(kernel)
                    yield stage, problem


def text(stage: Stage, problem: Problem) -> str:
    """A kernel's stage and problem."""
    return f"{stage.id}  {report.layer_text(problem)}  batch {problem.N}  {problem.dtype}"


def spills(found: Compiled) -> bool:
    """Whether a kernel has values in local memory."""
    return bool(found.spill_stores or found.spill_loads or found.local_bytes)


def row(found: Compiled) -> str:
    """A kernel's registers, spills, shared memory and occupancy."""
    shared = found.shared_bytes + found.dynamic_shared_bytes
    blocks = found.occupancy.blocks_per_sm if found.occupancy else 0
    return (
        f"{found.registers:3} registers  {found.spill_stores:3} + {found.spill_loads:3} bytes spilled  "
        f"{shared:7,} bytes shared  {blocks} blocks of {found.threads}"
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, folder=None)
    parser.each("--op", (), "only these ops", choices=OPS)
    parser.each("--network", NETWORKS, "only these networks' layers")
    parser.each("--batch", (32, 1), "images (default: 32 and 1)", type=at_least(1))
    parser.each("--dtype", ("float32", "float16"), "storage type (default: float32 and float16)", choices=DTYPES)
    parser.add_argument("--layout", default="NHWC", choices=LAYOUTS, help="of the stages (default: %(default)s)")
    parser.add_argument("--last", type=at_least(0), default=1, help="so many of the last stages (default: %(default)s)")
    parser.add_argument("--cc", default="9.0", help="compute capability (default: %(default)s)")
    parser.add_argument("--seconds", type=above(0), default=1800, help="stop after so long (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="list the kernels and compile nothing")
    options = parser.parse_args(given)
    started, spilled, done = time.monotonic(), [], 0
    try:
        asked = options.op, options.dtype, options.network, options.batch, options.layout, options.last
        found = list(kernels(*asked))
        for stage, problem in found:
            if time.monotonic() - started > options.seconds:
                break
            if options.list:
                print(text(stage, problem))
                continue
            made = inspect.compile(stage, problem=problem, cc=options.cc)
            done += 1
            print(f"{row(made)}  {text(stage, problem)}", flush=True)
            if spills(made):
                spilled.append(f"{row(made)}  {text(stage, problem)}")
    except (ValueError, InspectError) as error:  # a network that there is not, or no compiler
        print(f"spills: {error}", file=sys.stderr)
        return 2
    if options.list:
        print(f"{len(found)} kernels")
        return 0
    took = f"{time.monotonic() - started:.0f} s"
    print(f"\n{done} of {len(found)} kernels compiled in {took}, {len(spilled)} spill", *spilled, sep="\n")
    return 1 if spilled else 0 if done else 2


if __name__ == "__main__":
    sys.exit(main())
