"""``python -m dwlab plan``: a network's plan as a table, as JSON, as a picture, or compared with measured times."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from dwlab.gpu import specs as gpus
from dwlab.gpu import target
from dwlab.planner import Plan, plan, traced
from dwlab.planner.modules import PlanError, Rules
from dwlab.planner.picture import describe, draw
from dwlab.planner.validation import recorded_run, validate
from dwlab.problems import networks
from dwlab.text import commandline, terminal


def register(command: commandline.Register) -> None:
    """Adds `plan`."""
    examples = (
        "examples: python -m dwlab plan mobilenet_v2 --gpu l4 --batch 32\n"
        "          python -m dwlab plan xception --gpu orin --dtype float16 --picture xception.png\n"
        "          python -m dwlab plan mobilenet_v1 --validate\n"
        "          python -m dwlab plan FILE.py:make --gpu t4"
    )
    add = command("plan", main, examples).add_argument
    gpus = "such as gtx1660, orin, present; `predict --gpus` lists them (default: h200)"
    layouts = "NCHW or NHWC (default: %(default)s, in which networks are run and recorded)"
    whose = "whose times: ours, or ideal ones, at the GPU's ceilings; each has tiles of its own, unfused too"
    add("network", metavar="NETWORK", help=f"{', '.join(networks.NETWORKS)}; or {traced.OWN}")
    add("--gpu", default="h200", metavar="NAME", help=gpus)
    add("--dtype", metavar="TYPE", help="float32 (the default), float16, bfloat16 or int8")
    add("--batch", type=commandline.whole(1, 1 << 16), metavar="N", help="images (default: 1)")
    add("--layout", default="NHWC", metavar="NAME", help=layouts)
    add("--objective", default="time", metavar="WHAT", help="least predicted time, or gma: fewest bytes accessed")
    add("--kernels", default="ours", metavar="WHOSE", help=whose)
    add("--picture", type=commandline.file_name(".png"), metavar="FILE.png", help="draw the chain of layers")
    add("--validate", action="store_true", help="compare each pair's decision with recorded times")


def main(options: Namespace) -> int:
    """Decides for each depthwise and pointwise layer of a network whether it shares a kernel with its
    neighbour on a GPU, which need not be present: kernel, tile, bytes accessed before and after,
    multiply-adds done twice. Nothing is timed.
    """
    rules = Rules(options.objective, kernels=options.kernels)
    if options.gpu.strip().lower() == "present" and target.mode != "gpu":
        raise PlanError(
            f"--gpu present: there is none here ({target.reason}). Name one, which need not be here: "
            f"{', '.join(gpus.NAMES)}"
        )
    how = {"dtype": options.dtype, "batch": options.batch, "layout": options.layout}
    if ".py:" in options.network:
        given = traced.of_file(options.network, options.dtype, options.batch, 224)
        options.network, how = traced.trace(*given, options.layout)[0], {}
    made = plan(options.network, options.gpu, rules=rules, **how)
    if options.validate:
        found = validate(made)
        text = found.to_dict() if options.json else found.text(terminal.width())
    else:
        measured = _recorded(made)
        sentences = [_sentence(measured)] if measured else []
        text = made.to_dict() | {"recorded": measured} if options.json else made.text(terminal.width(), *sentences)
    print(json.dumps(text, indent=1, ensure_ascii=False) if options.json else text)
    if options.picture:
        draw(made).savefig(options.picture, format="png", metadata={"Software": None, "Description": describe(made)})
        terminal.wrote(options.picture)
    return 0


def _recorded(made: Plan) -> dict[str, Any] | None:
    """The recorded times of the plan's whole network on its GPU, whose pairs were chosen by measured times."""
    found = recorded_run(made.network, made.gpu.name)
    if found is None:
        return None
    row, run = found
    names = ("apart_us", "fused_us", "pairs", "kernels", "fused_kernels")
    return {"gpu": run.gpu, "date": run.date[:10], **{name: row.get(name) for name in names}}


def _sentence(measured: dict[str, Any]) -> str:
    """The recorded times of the whole network, next to the predicted ones."""
    text = f"Recorded on {measured['gpu']}, {measured['date']}: {measured['apart_us']:,.0f} µs unfused"
    if measured["fused_us"]:
        text += f", {measured['fused_us']:,.0f} µs with {measured['pairs']} fused pairs, chosen by measured times"
        text += ", so it runs layer by layer" if measured["fused_us"] >= measured["apart_us"] else ""
    elif measured["pairs"] == 0:
        text += ", and no pair of layers faster in one kernel"
    return f"{text}; the whole network in one CUDA graph, with the layers that are not planned."
