"""Layers of image networks and short convolutions as PyTorch's operators and modules: values, gradients, bad input."""

import itertools
import re

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")

import fakes  # noqa: E402
from parts import most  # noqa: E402

from dwlab import target  # noqa: E402
from dwlab.kernels import torch_layers as ours  # noqa: E402
from dwlab.kernels import torch_short  # noqa: E402
from dwlab.kernels.depthwise1d import channels_last  # noqa: E402
from dwlab.kernels.dispatch import DispatchError  # noqa: E402
from dwlab.kernels.torch_short import LAYOUTS, ShortConv1d, short_conv, short_conv_update  # noqa: E402
from dwlab.problems import DepthwiseConv1d  # noqa: E402

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


# ---- short_conv at lengths and widths of causal-conv1d's tests

NEAR = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
LENGTHS = 1, 2, 8, 16, 32, 64, 128, 129, 130, 151, 256, 372, 512, 784, 1024, 1134, 2048, 4096
F = torch.nn.functional
each_type = pytest.mark.parametrize("dtype", NEAR, ids=lambda one: str(one).removeprefix("torch."))


def leaf(*shape, **how):
    return drawn(*shape, **how).requires_grad_()


def reference(x, w, bias, activation, state, layout="BHL"):
    """By conv1d, any type."""
    rows = x if layout == "BHL" else x.transpose(1, 2)
    rows = F.pad(rows, (w.shape[1] - 1, 0)) if state is None else torch.cat([state, rows], -1)
    y = F.conv1d(rows, w.flip(-1)[:, None], bias, groups=w.shape[0])
    y = y if activation is None else F.silu(y)
    return y if layout == "BHL" else y.transpose(1, 2)


def within(got, want, dtype):
    assert got.shape == want.shape and (
        not want.numel() or (got.double() - want).abs().max() <= NEAR[dtype] * max(1, want.abs().max())
    )


def compare(dtype, B, H, L, K, bias, activation, initial, layout, call=short_conv):
    """Value, final state and all gradients against float64."""
    x = leaf(*((B, H, L) if layout == "BHL" else (B, L, H)), dtype=dtype)
    given = [x, leaf(H, K, seed=1), leaf(H, dtype=dtype) if bias else None]
    given.append(leaf(B, H, K - 1, dtype=dtype) if initial else None)
    exact = [None if one is None else one.detach().double().requires_grad_() for one in given]
    y, end = call(*given[:3], activation, given[3], True, layout)
    want = reference(*exact[:3], activation, exact[3], layout)
    assert y.dtype == dtype and y.is_contiguous() and end.shape == (B, H, K - 1)
    within(y, want, dtype)
    rows = x if layout == "BHL" else x.transpose(1, 2)
    before = x.new_zeros(B, H, K - 1) if given[3] is None else given[3]
    assert torch.equal(end, torch.cat([before, rows], -1)[..., L:])
    dy = drawn(*y.shape, dtype=dtype, seed=2)
    y.backward(dy)
    want.backward(dy.double())
    for one, other in zip(given, exact, strict=True):
        if one is not None and one.numel():
            assert one.grad.dtype == one.dtype
            scale = 8 * max(1, other.grad.abs().max())
            within(one.grad / scale, other.grad / scale, dtype)


@each_type
@pytest.mark.parametrize("K", [2, 3, 4])
def test_values_and_gradients_at_causal_conv1ds_lengths(dtype, K):
    ways = itertools.product((False, True), (None, "silu"), (False, True), LAYOUTS)
    cases = [(L, *way) for L, way in itertools.product(LENGTHS, ways)]
    step = max(1, len(cases) // most(9) | 1)
    for L, bias, activation, initial, layout in cases[3 * list(NEAR).index(dtype) + K :: step]:
        compare(dtype, 1, 8, L, K, bias, activation, initial, layout)


@each_type
@pytest.mark.parametrize(
    "sizes", [(2, 3, 1, 1), (2, 3, 5, 9), (4, 7, 2, 4), (2, 5, 21, 4), (3, 8, 33, 12), (0, 4, 9, 3)], ids=str
)
def test_any_sizes(dtype, sizes):
    for layout in LAYOUTS:
        compare(dtype, *sizes, True, "silu", True, layout)


def test_long_spans_of_channels_that_lie_together(monkeypatch):
    monkeypatch.setattr(channels_last, "ENOUGH", 1)
    for dtype, L in zip(NEAR, (37, 270, 16), strict=True):
        compare(dtype, 2, 16, L, 4, True, "silu", False, "BLH")
    w, x = drawn(9)[1:, None], drawn(1, 5, 8)  # filters that begin at no multiple of 16 bytes
    within(short_conv(x, w, layout="BLH"), reference(x, w, None, None, None, "BLH"), x.dtype)


@pytest.mark.parametrize(("layout", "form"), itertools.product(LAYOUTS, ("", "bias, SiLU")))
def test_the_ways_that_are_timed_compute_the_same(monkeypatch, layout, form):
    script, (x, w, bias) = fakes.script("record_short"), (drawn(2, 8, 20), drawn(8, 4), drawn(8) if form else None)
    monkeypatch.setattr(torch, "compile", lambda call, **how: call)
    for prepare in script.ways(script.Task(DepthwiseConv1d(2, 8, 20, 4, "causal"), layout, form, True)).values():
        call, outputs = prepare(x, w, bias)
        torch.testing.assert_close(outputs(call())["y"], reference(x, w, bias, "silu" if form else None, None))


@each_type
@pytest.mark.parametrize("K", [1, 2, 4])
def test_token_by_token_is_the_whole_row(dtype, K):
    w, bias, x = drawn(5, K), drawn(5), drawn(3, 5, 7, dtype=dtype)
    y, end = short_conv(x, w, bias, "silu", return_final_state=True)
    state = x.new_zeros(3, 5, K - 1)
    for t in range(7):
        within(short_conv_update(x[..., t].contiguous(), state, w, bias, "silu"), y[..., t].double(), dtype)
    assert torch.equal(state, end)


def test_pytorch_finds_nothing_wrong_with_the_operators():
    x, w, b, s = leaf(2, 4, 18), leaf(4, 3), leaf(4), leaf(2, 4, 2)
    for given in ((x, w, b, s, True, False), (x, w, None, None, False, False)):
        torch.library.opcheck(torch.ops.dwlab.short_conv.default, given)
    token = (x[..., 0].detach().contiguous(), s.detach(), w.detach(), b.detach(), True)
    torch.library.opcheck(torch.ops.dwlab.short_conv_update.default, token)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_compile_has_it_in_its_graph(layout):
    compiled = torch.compile(short_conv, backend="aot_eager", fullgraph=True)
    compare(torch.float32, 2, 8, 20, 4, True, "silu", True, layout, compiled)


def test_filters_are_laid_out_anew_for_each_call():
    w, bias = drawn(3, 4), torch.zeros(3, device=DEVICE)
    once = torch_short._filters(w, bias).clone()
    torch.testing.assert_close(torch_short._filters(w.mul_(2), bias), 2 * once)


@each_type
def test_a_module_loads_an_nn_conv1d(dtype):
    for K, bias in itertools.product((1, 4), (False, True)):
        theirs = torch.nn.Conv1d(6, 6, K, padding=K - 1, groups=6, bias=bias).to(DEVICE, dtype)
        mine = ShortConv1d(6, K, bias, "silu").to(DEVICE, dtype)
        mine.load_state_dict(theirs.state_dict())
        x = drawn(2, 6, 19, dtype=dtype)
        y, state = mine(x, return_final_state=True)
        within(y, F.silu(theirs.double()(x.double())[..., :19]), dtype)
        with torch.no_grad():
            one = drawn(2, 6, dtype=dtype)
            within(mine.update(one, state), mine(torch.cat([x, one[..., None]], -1))[..., -1].double(), dtype)


X, W = drawn(1, 4, 5, 5), drawn(4, 1, 3, 3)
X1, W1 = drawn(2, 4, 9), drawn(4, 3)
STATE = drawn(2, 4, 2)


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
        (lambda: short_conv(X1.double(), W1), "x is torch.float64: pass a torch tensor of float32, float16, bfloat16"),
        (lambda: short_conv([1], W1), "x is list: pass"),
        (lambda: short_conv(X1[0], W1), "x has shape (4, 9): (B, H, L) is needed"),
        (lambda: short_conv(X1, W1, layout="LBH"), "layout='LBH': BHL or BLH is needed"),
        (lambda: short_conv(X1, W1, layout="BLH"), "w has shape (4, 3): (9, K) is needed"),
        (lambda: short_conv(X1.transpose(1, 2), W1, layout="BLH"), "pass x.contiguous()"),
        (lambda: short_conv(X1, W1[:, None]), "w has shape (4, 1, 3): (4, K) is needed"),
        (lambda: short_conv(X1, W1[:, :0]), "w has no taps"),
        (lambda: short_conv(X1, W1.half()), "w is torch.float16 beside x of torch.float32"),
        (lambda: short_conv(X1, W1, W1), "bias has shape (4, 3): (4) is needed"),
        (lambda: short_conv(X1, W1, activation="relu"), "activation='relu': None or 'silu' is needed"),
        (lambda: short_conv(X1, W1, initial_state=STATE[..., :1]), "state has shape (2, 4, 1): (2, 4, 2) is needed"),
        (lambda: short_conv(X1, W1.to("meta")), "w is on meta and x on"),
        (lambda: short_conv_update(X1, STATE, W1), "x has shape (2, 4, 9): (B, H) is needed"),
        (lambda: short_conv_update(X1[..., 0].contiguous(), STATE.half(), W1), "state is torch.float16"),
        (lambda: short_conv_update(X1[..., 0].contiguous(), STATE, W1.clone().requires_grad_()), "has no gradient"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(DispatchError, match=re.escape(message)):
        call()
