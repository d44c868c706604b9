"""The ladder of lessons 32 and 38, timed in one run: ``python benchmarks/ladder.py [FOLDER]``. Needs a GPU.

Two naive kernels, then one change a rung as far as fused/dwpw/slide, on one pair of layers in float32. Registers and
local bytes are the compiler's, sectors and wavefronts the interpreter's, of one image. Writes one record into FOLDER
(dwlab/records/ladders if none is given). Exit status 1 if a rung failed: it says why, and the others go on.

examples: ladder.py --images 1
          ladder.py --dry --size 8 --channels 16 --filters 32      no time, no record; needs no GPU
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recording import Parser, needs_gpu, said, tell

from dwlab.records import kinds, ladder
from dwlab.records.ladder import LadderRun, Rung
from dwlab.records.method import Time
from dwlab.study.sizes import resized
from dwlab.text.commandline import whole


@dataclass(frozen=True)
class TwoKernels:
    """A stage a layer, one after the other, the map between them in global memory; a bench takes it as a stage."""

    first: Any
    second: Any
    id: str = "two kernels"

    def starter(self, pair: Any, arrays: Mapping[str, Any]) -> Callable[[Any], None]:
        from dwlab.target import cuda

        between = cuda.device_array(pair.first.shapes("forward")["y"], "float32")
        one = self.first.starter(pair.first, {"x": arrays["x"], "w": arrays["w1"], "y": between})
        two = self.second.starter(pair.second, {"x": between, "w": arrays["w2"], "y": arrays["y"]})

        def start(stream: Any = 0) -> None:
            one(stream)
            two(stream)

        return start

    def run(self, pair: Any, arrays: Mapping[str, Any]) -> None:
        self.starter(pair, arrays)(0)


def kernels(rung: Any, pair: Any) -> list[tuple[Any, Any, dict[str, str]]]:
    """(stage, its layer or pair, the kernel's arrays -> their names in the record) of each kernel of a rung."""
    if not isinstance(rung, TwoKernels):
        return [(rung, pair, {name: name for name in ("x", "w1", "w2", "y")})]
    first, second = {"x": "x", "w": "w1", "y": "between"}, {"x": "between", "w": "w2", "y": "y"}
    return [(rung.first, pair.first, first), (rung.second, pair.second, second)]


def counted(name: str, rung: Any, pair: Any) -> Rung:
    from dwlab.compiler import inspect

    sectors, wavefronts, made, failure = {}, 0, [], inspect.missing()
    if getattr(rung, "tiles", None):
        rung = rung.with_config(rung.config(pair))  # one image would get another
    for stage, layer, names in kernels(rung, resized(pair, N=1)):
        seen = stage.xray(layer)
        wavefronts += seen.totals.shared_wavefronts
        for array, called in names.items():
            sectors[called] = sectors.get(called, 0) + seen.array(array).sectors
    how = [stage.launch(layer) for stage, layer, _ in kernels(rung, pair)]
    try:
        made = [] if failure else [inspect.compile(one, problem=layer) for one, layer, _ in kernels(rung, pair)]
    except inspect.InspectError as error:
        failure = said(error)
    return Rung(
        name, tuple(one.registers for one in made), tuple(one.local_bytes for one in made),
        tuple(one.blocks for one in how), tuple(one.threads for one in how), sectors, wavefronts, failure=failure,
    )  # fmt: skip


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, ladder.FOLDER)
    for name, default in (("images", 32), ("channels", 128), ("filters", 128), ("size", 56)):
        parser.add_argument(f"--{name}", type=whole(1), default=default, help="of the pair (default: %(default)s)")
    parser.add_argument("--dry", action="store_true", help="no time, no record; needs no GPU")
    options = parser.parse_args(given)
    folder = None if options.dry else needs_gpu(options.folder)
    from dwlab import study
    from dwlab.gpu import provenance
    from dwlab.kernels.fused import ladder as rungs
    from dwlab.kernels.registry import stage
    from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

    N, C, F, size = options.images, options.channels, options.filters, options.size
    one, two = DepthwiseConv2d(N, C, size, size, 3, layout="NHWC"), Pointwise(N, C, F, size, size, layout="NHWC")
    pair = Fused(one, two)
    todo = {"two kernels": TwoKernels(stage("depthwise2d/forward/naive"), stage("pointwise/forward/naive"))}
    todo |= rungs.rungs()
    times: dict[str, Any] = {}
    if folder:
        bench = study.GpuBench(few=True)
        with bench.prepare(pair, "dwpw") as prepared:
            for name, rung in todo.items():
                try:
                    timed = prepared.time(rung)
                    times[name] = {"time": Time(timed.median_us, timed.p10_us, timed.p90_us, timed.rounds)}
                except Exception as error:  # the other rungs may run
                    times[name] = {"failure": said(error)}
    found = []
    for name, rung in todo.items():
        try:
            row = counted(name, rung, pair)
        except Exception as error:
            row = Rung(name, failure=said(error))
        found.append(replace(row, **times.get(name, {})))
        tell(f"{found[-1]}")
    if folder:
        copy, source = bench.machine.ceilings.copy_gbps, Path(rungs.__file__).read_text(encoding="utf-8")
        written = kinds.write(
            folder, LadderRun, provenance.environment(bench.machine), problem=f"{pair}", images=N, copy_gbps=copy,
            floor_us=pair.compulsory_bytes() / copy / 1e3, source=ladder.digest(source), rungs=found,
        )  # fmt: skip
        tell(f"written: {written.name}")
    return int(any(row.failure for row in found))


if __name__ == "__main__":
    sys.exit(main())
