"""``python -m dwlab infer``: a network run by the kernels, checked, and on a GPU timed."""

from __future__ import annotations

import argparse
import importlib.util
import json
from argparse import Namespace
from typing import Any

from dwlab import inference
from dwlab.gpu import target
from dwlab.inference import comparison, images, int8, selection, timing
from dwlab.inference.weights import random_weights, weights_from_torch
from dwlab.measure.timing import SIMULATED
from dwlab.planner import traced
from dwlab.problems import networks
from dwlab.problems.networks import InferenceError
from dwlab.text import commandline, terminal

SIMULATED_RESOLUTION = 32
"""Pixels that a network is run with in simulated mode if none are given: seconds on dwlab.simt."""


def register(command: commandline.Register) -> None:
    """Adds `infer`."""
    examples = (
        "examples: python -m dwlab infer mobilenet_v2 --batch 32 --dtype float16\n"
        "          python -m dwlab infer mobilenet_v1 --dtype int8 --tune\n"
        "          python -m dwlab infer mobilenet_v2 --weights FILE.py:make\n"
        "          python -m dwlab infer FILE.py:make --batch 2"
    )
    add, either = command("infer", main, examples).add_argument, argparse.BooleanOptionalAction
    fused = "two layers in a kernel, or none (default: whichever way of the whole network was faster)"
    overlap = "from compute capability 9.0 on: kernels may start while the one before runs, where that is faster"
    pixels = "pixels a side (default: 224; simulated 32)"
    add("network", metavar="NETWORK", help=f"{', '.join(networks.NETWORKS)}; or {traced.OWN}")
    add("--weights", metavar="FILE.py:MAKE", help="a function that returns the same network as a torch.nn.Module")
    add("--batch", type=commandline.whole(1, 1 << 16), metavar="N", help="images (default: 1)")
    add("--dtype", metavar="TYPE", help="float32 (the default), float16 or int8; of a model of your own bfloat16, too")
    add("--layout", default="NHWC", metavar="NAME", help="NCHW or NHWC (default: %(default)s)")
    add("--fused", action=either, default=None, help=fused)
    add("--overlap", action=either, default=True, help=overlap)
    add("--resolution", type=commandline.whole(1, 1 << 13), metavar="N", help=pixels)
    add("--compile", action=either, default=True, help="time torch.compile too")
    add("--tune", action="store_true", help="on a GPU: time the stages here first, by that choose them")
    add("--energy", action="store_true", help="energy per image too (needs nvidia-ml-py and a GPU)")


def main(options: Namespace) -> int:
    """Runs an image network through the stages, in one CUDA graph, and holds each kernel and the whole
    against PyTorch with the same weights (needs PyTorch): random ones, or a model's. In simulated mode,
    where nothing is timed, give few pixels. Status 1 if an output is wrong.
    """
    if importlib.util.find_spec("torch") is None:
        raise InferenceError(target.NO_TORCH)
    on_gpu = target.mode == "gpu"
    resolution = options.resolution or (224 if on_gpu else SIMULATED_RESOLUTION)
    if ".py:" in options.network:
        from dwlab.inference import own

        return own.main(options, resolution)
    network = networks.network(
        options.network, options.batch or 1, options.layout, options.dtype or "float32", resolution
    )
    if options.energy and not on_gpu:
        raise InferenceError("--energy: the simulated GPU uses none; it is measured on a GPU")
    weights = random_weights(network)
    if options.weights:
        weights = weights_from_torch(network, traced.of_file(options.weights, "float32", None, resolution)[0])
    calibration = None
    if network.dtype == "int8":
        calibration = int8.calibrate(network, weights)
        network = int8.quantise(network, weights, calibration).network
    tuned = timing.tune(network) if on_gpu and options.tune else None
    times = tuned and tuned.times
    here = "present" if on_gpu else "h200"
    decided = selection.decide(network, here, times=times, fuse=options.fused)
    how = {"times": times, "calibration": calibration, "overlap": options.overlap}
    model = inference.prepare(network, weights, decided.pieces, **how)
    unfused = None
    if on_gpu and decided.pairs:
        unfused = inference.prepare(network, weights, **how)
        if decided.by in ("kernels", "prediction"):  # nobody has timed the whole both ways on this GPU
            decided, model, unfused = timing.faster(decided, model, unfused)
    with terminal.progress(2 * len(model.steps), "step") as progress:
        compared = comparison.compare(model, images.random_image(network), progress)
    found: dict[str, Any] = {
        "network": network.name, "batch": network.batch, "layout": network.layout, "dtype": network.dtype,
        "resolution": resolution, "mode": target.mode,
        "decided": {name: getattr(decided, name) for name in ("by", "why", "unfused_us", "fused_us")},
        "steps": [{"layers": list(step.layers), "run_by": step.runner} for step in model.steps],
        "launches": None if model.graph is None else model.order, "tried_us": dict(model.tried),
        "check": compared.to_dict(),
    }  # fmt: skip
    if tuned:
        found["not_timed"] = dict(tuned.failures)
    energy = None
    if on_gpu:
        measured = timing.measure(model, compiled=options.compile, unfused=unfused)
        found["times"] = measured.to_dict()
        if options.energy:
            from dwlab.measure import energy as room

            energy = room.of_graph(model.graph, per_launch=network.batch)
            found["energy"] = energy.to_dict()
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return 0 if compared.ok else 1
    print(f"{model}\n\n{compared.summary()}")
    if on_gpu:
        print(f"\n{terminal.wrapped(decided.why)}")
    for what, why in found.get("not_timed", {}).items():
        print(f"not timed: {what}: {why}")
    print(f"\n{measured}" if on_gpu else f"\n{SIMULATED[0].upper()}{SIMULATED[1:]}")
    if energy is not None:
        print(f"\n{energy}")
    return 0 if compared.ok else 1
