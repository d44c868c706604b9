"""A model of PyTorch's as a Network: which of its layers these kernels may run, and why PyTorch runs the rest.

torch.export writes a model down, operator by operator, nothing in place; batch norms go into the convolutions before
them. A depthwise or pointwise convolution is a layer, and so is a linear one over the last axis of (N, H, W, C): with
its activation (layers.ACTIVATIONS) and then the sum behind it, where nothing else reads what is between. Each other
node is an operation "aten.…" whose note says why.
"""

from __future__ import annotations

import operator
import warnings
from dataclasses import replace
from typing import Any

from dwlab.gpu.target import NO_TORCH
from dwlab.problems import ProblemError
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import ATEN, INPUT, InferenceError, Layer, Network, NetworkError, Operation
from dwlab.text import commandline
from dwlab.text.terminal import plain

OWN = "FILE.py:MAKE, a function that returns a torch.nn.Module, or (module, images)"
TYPES = ("float32", "float16", "bfloat16")


def of_file(text: str, dtype: str | None, batch: int | None, resolution: int) -> tuple[Any, Any]:
    """(model, images) of FILE.py:MAKE, both of a dtype, the model's if None. Images that MAKE() does not return are
    random, so many (1 if None) of so many pixels a side.
    """
    torch, (file, _, name) = pytorch(), text.partition(".py:")
    if not name:
        raise NetworkError(f"{text}: give {OWN}")
    module = commandline.module_of(f"{file}.py")
    made = commandline.called(f"{name}()", module, lambda: getattr(module, name)())
    model, *images = made if isinstance(made, tuple) else (made,)
    if not isinstance(model, torch.nn.Module) or len(images) > 1 or (images and batch):
        raise NetworkError(f"{name}() returns {plain(repr(made))[:60]}: give {OWN}; images without --batch")
    if dtype not in (None, *TYPES):
        raise NetworkError(f"a model of your own is not run in {dtype}: use {', '.join(TYPES)}")
    kind = getattr(torch, dtype) if dtype else next((one.dtype for one in model.parameters()), torch.float32)
    drawn = torch.Generator().manual_seed(0)
    (x,) = images or [torch.randn(batch or 1, 3, resolution, resolution, generator=drawn)]
    return model.eval().to(kind), x.to(kind) if isinstance(x, torch.Tensor) else x


def pytorch() -> Any:
    """PyTorch. Raises InferenceError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise InferenceError(f"{NO_TORCH} ({error})") from None
    return torch


def trace(model: Any, example: Any, layout: str = "NHWC") -> tuple[Network, Any, dict[str, tuple[Any, ...]]]:
    """(network, graph, nodes) of a model on maps of an example's sizes, (N, C, H, W): the torch.fx.GraphModule, and of
    each layer its nodes there, the convolution first. layout: of the maps of the layers.

    Raises NetworkError, whose words say what is wrong, and ProblemError for a layout that there is not.
    """
    torch, name, dtype = pytorch(), type(model).__name__, str(getattr(example, "dtype", "")).removeprefix("torch.")
    if not isinstance(model, torch.nn.Module) or any(one.training for one in model.modules()):
        raise NetworkError(f"a {name} in training, or no model: give a torch.nn.Module after its eval()")
    if dtype not in TYPES or example.ndim != 4 or not example.numel():
        got = f"{tuple(example.shape)} {dtype}" if isinstance(example, torch.Tensor) else type(example).__name__
        raise NetworkError(f"the example is {got}: give images, a tensor (N, C, H, W) of {', '.join(TYPES)}")
    for what, one in (("the example", example), *model.named_parameters(), *model.named_buffers()):
        if one.device != example.device or (one.is_floating_point() and one.dtype != example.dtype):
            raise NetworkError(f"{what} is {one.dtype}, {one.device}; the example {example.dtype}, {example.device}")
        if not bool(torch.isfinite(one).all()):
            raise NetworkError(f"{what} holds numbers that are not finite")
    try:
        with warnings.catch_warnings():  # PyTorch's, of its own code
            warnings.simplefilter("ignore")
            whole = torch.export.export(model, (example,), strict=False).run_decompositions({}).module()
    except Exception as error:  # whatever its tracer, or the model itself, raises
        line = plain((str(error).strip().splitlines() or [""])[0])[:160]
        what = "steps that depend on values in tensors cannot be written down once for all"
        raise NetworkError(f"torch.export does not trace {name}, {type(error).__name__}: {line}; {what}") from None
    graph = torch.fx.GraphModule(whole, whole.graph)
    for node in list(graph.graph.nodes):
        if node.op == "call_module":  # checks of the input, which are the module's
            graph.graph.erase_node(node)
        elif op_of(node) == "view":  # of another memory format it may not be one
            node.target = torch.ops.aten.reshape.default
        elif op_of(node) == "_native_batch_norm_legit_no_training":
            _fold(torch, graph, node)
    for node in list(graph.graph.nodes):
        _fill(torch, graph, node)
    layers, nodes = _layers(graph, {"layout": layout, "dtype": dtype})
    return Network(name, layers, len(example), layout, dtype, example.shape[-1]), graph, nodes


def op_of(node: Any) -> str:
    """A node's operator in a word: "conv2d", "hardtanh", "getitem"."""
    text = str(node.target)
    return text.split(".")[1] if text.startswith(ATEN) else getattr(node.target, "__name__", text)


def given(node: Any) -> dict[str, Any]:
    """The arguments of a convolution's node by name, or of a linear layer's."""
    found = {"input": None, "weight": None, "bias": None, "stride": [1], "padding": [0], "dilation": [1], "groups": 1}
    return found | dict(zip(found, node.args, strict=False), **node.kwargs)


def computed(node: Any) -> bool:
    """Whether the weights of a convolution's node are no parameters."""
    return any(one is not None and one.op != "get_attr" for one in (given(node)["weight"], given(node)["bias"]))


def value(graph: Any, node: Any) -> Any:
    """The tensor of a parameter's node; None of none."""
    return None if node is None else operator.attrgetter(node.target)(graph)


def addend(node: Any, own: Any) -> Any:
    """The node that a sum's adds to `own`; None where it is none, or multiplied first."""
    others = [one for one in node.args if one is not own]
    return others[0] if len(others) == 1 == len(node.args) - 1 and not node.kwargs else None


def _fold(torch: Any, graph: Any, norm: Any) -> None:
    """A batch norm into the convolution before it, in float64, if nothing else reads what is between."""
    convolution, scale, shift, mean, variance, _, epsilon = norm.args
    if op_of(convolution) != "conv2d" or len(convolution.users) > 1 or computed(convolution):
        return
    args = given(convolution)
    every = [value(graph, one) for one in (args["weight"], args["bias"], mean, variance, scale, shift)]
    w, b, mean, variance, *more = (None if one is None else one.double() for one in every)
    folded = torch.nn.utils.fuse_conv_bn_weights(w, b, mean, variance, epsilon, *more)
    _give(torch, graph, convolution, dict(zip(("weight", "bias"), folded, strict=True)), every[0].dtype)
    for user in list(norm.users):  # the first of what it gives
        user.replace_all_uses_with(convolution)
        graph.graph.erase_node(user)
    graph.graph.erase_node(norm)


def _give(torch: Any, graph: Any, convolution: Any, parameters: dict[str, Any], dtype: Any) -> None:
    """Other parameters for a convolution: of a module that is called twice each call's own."""
    args = given(convolution)
    convolution.meta.setdefault("path", args["weight"].target)
    for name, one in parameters.items():
        own = f"{convolution.name}_own_{name}"
        graph.register_parameter(own, torch.nn.Parameter(one.detach().to(dtype)))
        with graph.graph.inserting_before(convolution):
            args[name] = graph.graph.get_attr(own)
        args[name].meta["val"] = one
    convolution.args, convolution.kwargs = tuple(args.values()), {}


def _fill(torch: Any, graph: Any, node: Any) -> None:
    """Filters of zeros up to a multiple of 8, for vectors of 16 bytes, for a pointwise layer that another one reads
    alone: what they give meets channels of zeros there."""
    between = [node] if _activation(after := _follower(node)) == "none" else [node, after]
    pair = node, _follower(between[-1])
    if any(one is None or op_of(one) != "conv2d" or computed(one) for one in pair):
        return
    (one, w1), (two, w2) = ((given(node), value(graph, given(node)["weight"])) for node in pair)
    more, sizes = -len(w1) % 8, {one["groups"], two["groups"], *w1.shape[2:], *w2.shape[2:]}
    if not more or sizes != {1} or two["input"] is not between[-1]:
        return
    pad = torch.nn.functional.pad
    bias = {"bias": pad(value(graph, one["bias"]), (0, more))} if one["bias"] else {}
    _give(torch, graph, node, {"weight": pad(w1, (0, 0, 0, 0, 0, 0, 0, more)), **bias}, w1.dtype)
    _give(torch, graph, pair[1], {"weight": pad(w2, (0, 0, 0, 0, 0, more))}, w2.dtype)
    for wider in between:
        N, C, *sides = _shape(wider)
        wider.meta["val"] = torch.empty(N, C + more, *sides, device="meta")


def _layers(graph: Any, how: dict[str, str]) -> tuple[tuple[Layer, ...], dict[str, tuple[Any, ...]]]:
    names: dict[Any, str] = {}
    found: list[Layer] = []
    chains: dict[str, tuple[Any, ...]] = {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            names[node] = INPUT
        if node.op in ("placeholder", "get_attr") or node in names:
            continue
        reads, name = [names[one] for one in node.all_input_nodes if one in names], node.name
        problem: Any = "" if node.op == "output" else "neither depthwise nor pointwise"
        if op_of(node) in ("conv2d", "linear") and len(_shape(node)) == 4 and reads and not computed(node):
            path = node.meta.get("path", given(node)["weight"].target).rpartition(".")[0]
            name = path if path and path not in names.values() else name
            problem = _problem(node, how | {"bias": given(node)["bias"] is not None})
            if reads[0] in chains and op_of(chains[reads[0]][0]) != op_of(node):
                problem = f"its axes are not those of {reads[0]}"
        chain, note, residual = [node], problem, ""
        if isinstance(problem, str):
            N, C, H, W = (*_shape(node), 1, 1, 1, 1)[:4]
            problem = Operation(ATEN + op_of(node), N, C, C, H, W, **how)
        else:
            activation = _activation(after := _follower(node))
            chain += [after] * (activation != "none")
            if (after := _follower(chain[-1])) and op_of(after) == "add":
                other = addend(after, chain[-1])
                if other in names and _shape(other) == _shape(after):  # it is computed before this layer
                    chain, residual = [*chain, after], names[other]
            note, problem = "", replace(problem, activation=activation, residual=bool(residual))
            chains[name] = tuple(chain)
        x, *more = reads or [""]
        found.append(Layer(name, name.rpartition(".")[0] or name, problem, x, residual, note, tuple(more)))
        names |= dict.fromkeys(chain, name)
    if not chains:
        raise NetworkError("the model has no depthwise or pointwise layer: there is nothing for these kernels")
    return tuple(found), chains


def _follower(node: Any) -> Any:
    """The node that reads another's output, if it is one alone."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def _activation(node: Any) -> str:
    """The activation of a layer that a node is, "none" of other ones."""
    what = (op_of(node), *node.args[1:], *node.kwargs.values()) if node else ()
    known = {("hardtanh", 0, 6): "relu6", ("clamp", 0, 6): "relu6", ("hardswish",): "hard_swish"}
    known |= {(one,): one for one in ("relu", "gelu", "silu", "sigmoid")} | {("hardsigmoid",): "hard_sigmoid"}
    return known.get(what, "none")


def _shape(node: Any) -> tuple[int, ...]:
    """The shape of what a node gives; of several tensors the first's."""
    seen = node.meta.get("val")
    seen = seen[0] if isinstance(seen, (tuple, list)) and seen else seen
    return tuple(getattr(seen, "shape", ()))


def _problem(node: Any, how: dict[str, Any]) -> Any:
    """The layer that a convolution is, or a linear layer; or why it is none, in words."""
    args = given(node)
    x, (F, _, *filters) = _shape(args["input"]), _shape(args["weight"])
    if not filters:
        return Pointwise(x[0], x[3], F, x[1], x[2], **how)
    (N, C, H, W), (K, columns) = x, filters
    if isinstance(args["padding"], str):  # "same" with an even K pads unequally
        args["padding"] = [0 if args["padding"] == "valid" else K // 2 if K % 2 else -2]
    stride, padding, dilation = ({*args[one]} for one in ("stride", "padding", "dilation"))
    if K != columns or len(stride) > 1 or len(padding) > 1 or dilation != {1}:
        return "its filter, stride or padding is not square, or dilated"
    try:
        if args["groups"] == C == F:
            return DepthwiseConv2d(N, C, H, W, K, *stride, *padding, **how)
        if (args["groups"], K, stride, padding) == (1, 1, {1}, {0}):
            return Pointwise(N, C, F, H, W, **how)
    except ProblemError as error:
        return str(error)
    return f"neither depthwise nor pointwise: {K}×{K}, stride {max(stride)}, {args['groups']} groups"
