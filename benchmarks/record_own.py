"""Models of one's own beside torch.compile: ``python benchmarks/record_own.py [FOLDER]``.

torchvision's networks, untrained, through `inference.own.from_torch`, of 224 x 224. Each layer of ours is held against
float64 first, and the whole as `infer FILE.py:MAKE` does; then ours and PyTorch's model, as they are and through
torch.compile (its default), are timed as CUDA graphs.

Writes one record into FOLDER (the project's own if none is given): the section `own`. Networks compile in processes of
their own, before any is timed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recording import CONTEXT, Parser, ahead, beside, record, tell, told
from tables import networks as tables

from dwlab import inference
from dwlab.text.commandline import whole

NETWORKS = (  # functions of torchvision.models, and a width
    "mobilenet_v2", "mobilenet_v2 0.5", "mobilenet_v3_small", "mobilenet_v3_large", "mnasnet1_0", "efficientnet_b0",
    "convnext_tiny", "shufflenet_v2_x1_0",
)  # fmt: skip
PIXELS = 224


@dataclass(frozen=True)
class Task:
    """A network in a storage type, at these batches one after the other."""

    name: str
    dtype: str
    batches: tuple[int, ...]

    def made(self, batch: int) -> tuple[Any, Any]:
        """(model, images), the same ones each time."""
        import torch
        import torchvision

        name, _, width = self.name.partition(" ")
        torch.manual_seed(0)
        model = getattr(torchvision.models, name)(**{"width_mult": float(width)} if width else {}).cuda()
        x, kind = torch.randn(max(batch, 16), 3, PIXELS, PIXELS, device="cuda"), getattr(torch, self.dtype)
        for part in model.modules():  # untrained maps vanish in 16 bits: norms get these images' own means
            if isinstance(part, torch.nn.BatchNorm2d):
                part.momentum = 1.0
        for one, parameter in model.named_parameters():
            if one.endswith("layer_scale"):
                parameter.data.fill_(0.1)
        with torch.no_grad():
            model.train()(x)
        return model.eval().to(kind), x[:batch].to(kind)


def prepared(task: Task, batch: int, processes: int) -> dict[str, Any]:
    """A model of ours, what comparing it says, and the calls of all ways, each made once."""
    import torch

    from dwlab.inference import own, timing
    from dwlab.inference.with_torch import same_precision
    from dwlab.kernels import torch_layers

    model, x = task.made(batch)
    made = own.from_torch(model, x)
    launches = [one for names in made.chains for one in torch_layers.launches(str(made.network.kernels[names]))]
    kernels = ((stage, problem, timing.random_arrays(problem)) for problem, stage in dict.fromkeys(launches))
    count = inference.compile_kernels(kernels, processes)
    tell(f"{task.name}, batch {batch}: {count} kernels compiled")
    calls = own.ways(made, model, x)
    for name, call in calls.items():
        try:
            with torch.inference_mode(), same_precision():  # as when it is timed: torch.compile compiles for these
                call()
        except Exception as error:  # `measure` meets it again, and says so
            told(error)
        tell(f"{task.name}, batch {batch}: {name}")
    with torch.inference_mode():
        return {"own": made, "compared": own.compare(made, model, x), "calls": calls}


def measure(task: Task, batch: int, ready: Mapping[str, Any]) -> dict[str, list[Any]]:
    from dwlab.inference import own

    made, compared = ready["own"], ready["compared"]
    row = {"network": f"torchvision {task.name}", "batch": batch, "dtype": task.dtype, "layout": made.network.layout,
           "resolution": PIXELS}  # fmt: skip
    found: dict[str, list[Any]] = {"own": [row], "peers": []}
    try:
        row |= {"kernels": len(made.chains), "pairs": sum(len(one) > 1 for one in made.chains),
                "operations": len(made.plan.to_dict()["pytorch"]), "error": compared.error,
                "torch_error": compared.torch_error}  # fmt: skip
        if not compared.ok:
            row["failure"] = f"WRONG: {compared.summary()}"
            return found
        timed = own.measure(ready["calls"])
        shape = {"network": row["network"], "N": batch, "layout": row["layout"], "resolution": PIXELS}
        shown, us = {"path": "forward", "dtype": task.dtype, "shape": shape}, timed.ours.median_us
        found["peers"] += [one.to_dict() | shown for one in timed.baselines]
        row |= {"time_us": us, "p10_us": timed.ours.p10_us, "p90_us": timed.ours.p90_us, "cold": timed.ours.cold}
        row |= beside(timed.baselines, us)
    except Exception as error:
        row["failure"] = told(error)
    return found


def work(tasks: Any, results: Any, gpu: Any, start: Any, options: Mapping[str, Any]) -> None:
    import torch

    torch.cuda.init()
    ready = {}

    def prepare(task: Task) -> None:
        for batch in task.batches:
            ready[task, batch] = prepared(task, batch, options["processes"])

    for task in ahead(tasks, prepare, gpu, start, options["until"]):
        answer: dict[str, list[Any]] = {"own": [], "peers": []}
        with gpu:
            for batch in task.batches:
                for part, rows in measure(task, batch, ready.pop((task, batch))).items():
                    answer[part] += rows
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
        results.put(answer)


def main() -> int:
    parser = Parser(__doc__)
    parser.each("--network", NETWORKS, "only this function of torchvision.models, and a width")
    parser.each("--dtype", ("float16",), "storage type", choices=("float32", "float16", "bfloat16"))
    parser.each("--batch", (1, 32), "images (default: 1 and 32)", type=whole(1))
    parser.tasks(500, 8)
    options = parser.parse_args()

    tasks = [Task(name, dtype, tuple(options.batch)) for name in options.network for dtype in options.dtype]

    def how(machine: Any, left: float, count: int) -> Any:
        return CONTEXT.Barrier(count), {"processes": 2, "until": time.monotonic() + 0.7 * left}

    return record("record_own", options, lambda: tasks, work, "networks", how, lambda run: tables.own([run]),
                  ["own: torch.compile as it comes, without its search; norms have the means of random images; "
                   "layer_scale is 0.1."],
                  threads=2, quick=True, daemon=False)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
