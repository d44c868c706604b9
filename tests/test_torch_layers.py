"""Layers of image networks as PyTorch's operators and modules: values, gradients, memory formats, graphs, bad input."""

import re

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")

from dwlab import target  # noqa: E402
from dwlab.kernels import torch_layers as ours  # noqa: E402
from dwlab.kernels.dispatch import DispatchError  # noqa: E402

DEVICE = "cuda" if target.mode == "gpu" else "cpu"
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
CLOSE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.fixture(autouse=True)
def float32_is_float32():
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def drawn(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.rand(shape, generator=generator) - 0.4).to(DEVICE, dtype)


def near(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    scale = want.float().abs().max()
    assert (got.float() - want.float()).abs().max() <= CLOSE[got.dtype] * scale


def pairs(C, F, K, stride, activations, dtype=torch.float32, bias=True):
    """A SeparableConv2d and the same layers of PyTorch's, from one state."""
    mine = ours.SeparableConv2d(C, F, K, stride, activations, bias=bias).to(DEVICE, dtype)
    named = {"none": "Identity", "relu": "ReLU", "relu6": "ReLU6", "gelu": "GELU", "silu": "SiLU"}
    acts = [getattr(torch.nn, named.get(one, one.capitalize().replace("_", "")))() for one in activations]
    first = torch.nn.Conv2d(C, C, K, stride, K // 2, groups=C, bias=bias)
    theirs = torch.nn.Sequential(first, torch.nn.Conv2d(C, F, 1, bias=bias)).to(DEVICE, dtype)
    mine.load_state_dict(theirs.state_dict())
    return mine, lambda x: acts[1](theirs[1](acts[0](theirs[0](x)))), theirs


HALVES = [(9, "toeplitz"), (15, "toeplitz"), (7, "columns")]


@pytest.mark.parametrize(
    "K, stage, dtype",
    [(17, "blocked", torch.float32)] + [(*one, dtype) for one in HALVES for dtype in (torch.float16, torch.bfloat16)],
    ids=str,
)
def test_maps_in_nhwc_with_a_large_filter_are_brought_into_nchw(K, stage, dtype):
    x = drawn(2, 8, 9, 11, dtype=dtype).contiguous(memory_format=torch.channels_last)
    w, b, w2 = drawn(8, 1, K, K, dtype=dtype), drawn(8, dtype=dtype), drawn(16, 8, 1, 1, dtype=dtype, seed=1)
    y = ours.depthwise_conv2d(x, w, b, activation="silu")
    want = torch.nn.functional.silu(torch.nn.functional.conv2d(x, w, b, padding=K // 2, groups=8))
    near(y, want)
    assert y.is_contiguous(memory_format=torch.channels_last)
    near(ours.separable(x, (w, b), (w2, None), ("silu", "none")), torch.nn.functional.conv2d(want, w2))
    text = ours._text(str(dtype)[6:], "NHWC", False, (32, 192, 28, 28), (192, (K, 1, -1), True, "silu"))
    assert [one.name for _, one in ours.launches(text)] == [stage]


@pytest.mark.family(0.15)
@pytest.mark.parametrize("dtype", CLOSE, ids=lambda one: str(one).removeprefix("torch."))
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("sizes", "activations"),
    [((1, 8, 16, 7, 5, 3, 1), ("relu", "none")), ((2, 33, 5, 6, 9, 5, 2), ("none", "relu6")),
     ((2, 16, 24, 8, 8, 3, 2), ("relu6", "gelu")), ((1, 3, 4, 1, 1, 1, 1), ("gelu", "relu")),
     ((1, 8, 12, 5, 6, 3, 1), ("hard_swish", "hard_sigmoid")), ((2, 9, 8, 6, 5, 5, 2), ("silu", "sigmoid"))],
    ids=str,
)  # fmt: skip
def test_values_and_gradients_are_pytorchs(sizes, activations, form, dtype):
    N, C, F, H, W, K, stride = sizes
    mine, theirs, module = pairs(C, F, K, stride, activations, dtype)
    x = drawn(N, C, H, W, dtype=dtype).contiguous(memory_format=FORMATS[form]).requires_grad_()
    y, want = mine(x), theirs(x)
    near(y, want)
    assert y.is_contiguous(memory_format=FORMATS[form])
    dy = drawn(*y.shape, dtype=dtype, seed=1)
    got = torch.autograd.grad(y, (x, *mine.parameters()), dy)
    for one, other in zip(got, torch.autograd.grad(want, (x, *module.parameters()), dy), strict=True):
        near(one, other)
    middle = ours.depthwise_conv2d(x, mine[0].weight, mine[0].bias, stride, activation=activations[0])
    near(ours.pointwise(middle, mine[1].weight, mine[1].bias, activations[1]), want)


def test_two_layers_are_one_kernel_where_there_is_one(monkeypatch):
    asked, launched = [], ours._launched
    monkeypatch.setattr(ours, "_launched", lambda *given: asked.append(given[-1].id) or launched(*given))
    mine, theirs, _ = pairs(16, 32, 3, 1, ("relu", "none"))
    x = drawn(1, 16, 6, 6)
    near(mine(x.contiguous(memory_format=torch.channels_last)), theirs(x))
    near(mine(x), theirs(x))
    assert asked[0].startswith("fused/dwpw/") and "fused/dwpw/naive" not in asked
    assert [one.partition("/")[0] for one in asked[1:]] == ["depthwise2d", "pointwise"]  # none is written for NCHW


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torch_compile_has_them_in_its_graph():
    mine, theirs, _ = pairs(8, 16, 3, 1, ("relu", "relu"))
    x = drawn(1, 8, 5, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = torch.compile(mine, backend="eager", fullgraph=True)(x)
    near(y, theirs(x))
    y.sum().backward()
    problem = ours._text("float32", "NHWC", False, tuple(x.shape), (8, (3, 1, 1), True, "relu"))
    torch.library.opcheck(
        torch.ops.dwlab.layers.default, (x, [mine[0].weight, mine[0].bias], problem),
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip


X, W = drawn(1, 4, 5, 5), drawn(4, 1, 3, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ours.depthwise_conv2d(X[0], W), "pass a tensor (N, C, H, W)"),
        (lambda: ours.depthwise_conv2d(X.double(), W), "torch.float64: pass a tensor"),
        (lambda: ours.depthwise_conv2d([1], W), "x is list"),
        (lambda: ours.depthwise_conv2d(X[..., ::2], W), "pass x.contiguous()"),
        (lambda: ours.depthwise_conv2d(X, W[:3]), "w has shape (3, 1, 3, 3)"),
        (lambda: ours.depthwise_conv2d(X, W, activation="swish"), "swish"),
        (lambda: ours.depthwise_conv2d(X, W, padding=3), "padding must lie in"),
        (lambda: ours.pointwise(X, W), "w has shape (4, 1, 3, 3): ('F', 4, 1, 1) is needed"),
        (lambda: ours.depthwise_conv2d(X, W.to("meta")), "a parameter is on meta"),
        (lambda: ours.DepthwiseConv2d(4, 3, dilation=2), "dilation 1"),
        (lambda: ours.PointwiseConv2d(4, 8, groups=2), "is no pointwise layer"),
        (lambda: ours.DepthwiseConv2d(4, 3, padding_mode="reflect"), "zeros beside the map"),
    ],
)
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(DispatchError, match=re.escape(message)):
        call()
