"""short_conv against PyTorch: lengths and widths of causal-conv1d's tests, states, layouts, gradients, bad input."""

import itertools
import re

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")

from parts import most  # noqa: E402

from dwlab import target  # noqa: E402
from dwlab.kernels import torch_short  # noqa: E402
from dwlab.kernels.dispatch import DispatchError  # noqa: E402
from dwlab.kernels.torch_short import LAYOUTS, ShortConv1d, short_conv, short_conv_update  # noqa: E402

DEVICE = "cuda" if target.mode == "gpu" else "cpu"
CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
LENGTHS = 1, 2, 8, 16, 32, 64, 128, 129, 130, 151, 256, 372, 512, 784, 1024, 1134, 2048, 4096
F = torch.nn.functional
each_type = pytest.mark.parametrize("dtype", CLOSE, ids=lambda one: str(one).removeprefix("torch."))


def drawn(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.rand(shape, generator=generator) - 0.4).to(DEVICE, dtype).requires_grad_()


def reference(x, w, bias, activation, state, layout="BHL"):
    """By conv1d, any type."""
    rows = x if layout == "BHL" else x.transpose(1, 2)
    rows = F.pad(rows, (w.shape[1] - 1, 0)) if state is None else torch.cat([state, rows], -1)
    y = F.conv1d(rows, w.flip(-1)[:, None], bias, groups=w.shape[0])
    y = y if activation is None else F.silu(y)
    return y if layout == "BHL" else y.transpose(1, 2)


def near(got, want, dtype):
    assert got.shape == want.shape and (
        not want.numel() or (got.double() - want).abs().max() <= CLOSE[dtype] * max(1, want.abs().max())
    )


def compare(dtype, B, H, L, K, bias, activation, initial, layout, call=short_conv):
    """Value, final state and all gradients against float64."""
    x = drawn(*((B, H, L) if layout == "BHL" else (B, L, H)), dtype=dtype)
    given = [x, drawn(H, K, seed=1), drawn(H, dtype=dtype) if bias else None]
    given.append(drawn(B, H, K - 1, dtype=dtype) if initial else None)
    exact = [None if one is None else one.detach().double().requires_grad_() for one in given]
    y, end = call(*given[:3], activation, given[3], True, layout)
    want = reference(*exact[:3], activation, exact[3], layout)
    assert y.dtype == dtype and y.is_contiguous() and end.shape == (B, H, K - 1)
    near(y, want, dtype)
    rows = x if layout == "BHL" else x.transpose(1, 2)
    before = x.new_zeros(B, H, K - 1) if given[3] is None else given[3]
    assert torch.equal(end, torch.cat([before, rows], -1)[..., L:])
    dy = drawn(*y.shape, dtype=dtype, seed=2).detach()
    y.backward(dy)
    want.backward(dy.double())
    for one, other in zip(given, exact, strict=True):
        if one is not None and one.numel():
            assert one.grad.dtype == one.dtype
            scale = 8 * max(1, other.grad.abs().max())
            near(one.grad / scale, other.grad / scale, dtype)


@each_type
@pytest.mark.parametrize("K", [2, 3, 4])
def test_values_and_gradients_at_causal_conv1ds_lengths(dtype, K):
    ways = itertools.product((False, True), (None, "silu"), (False, True), LAYOUTS)
    cases = [(L, *way) for L, way in itertools.product(LENGTHS, ways)]
    step = max(1, len(cases) // most(9) | 1)
    for L, bias, activation, initial, layout in cases[3 * list(CLOSE).index(dtype) + K :: step]:
        compare(dtype, 1, 8, L, K, bias, activation, initial, layout)


@each_type
@pytest.mark.parametrize(
    "sizes", [(2, 3, 1, 1), (2, 3, 5, 9), (4, 7, 2, 4), (2, 5, 21, 4), (3, 8, 33, 12), (0, 4, 9, 3)], ids=str
)
def test_any_sizes(dtype, sizes):
    for layout in LAYOUTS:
        compare(dtype, *sizes, True, "silu", True, layout)


@each_type
@pytest.mark.parametrize("K", [1, 2, 4])
def test_token_by_token_is_the_whole_row(dtype, K):
    w, bias, x = drawn(5, K).detach(), drawn(5).detach(), drawn(3, 5, 7, dtype=dtype).detach()
    y, end = short_conv(x, w, bias, "silu", return_final_state=True)
    state = x.new_zeros(3, 5, K - 1)
    for t in range(7):
        near(short_conv_update(x[..., t].contiguous(), state, w, bias, "silu"), y[..., t].double(), dtype)
    assert torch.equal(state, end)


def test_pytorch_finds_nothing_wrong_with_the_operators():
    x, w, b, s = drawn(2, 4, 18), drawn(4, 3), drawn(4), drawn(2, 4, 2)
    for given in ((x, w, b, s, True, False), (x, w, None, None, False, False)):
        torch.library.opcheck(torch.ops.dwlab.short_conv.default, given)
    token = (x[..., 0].detach().contiguous(), s.detach(), w.detach(), b.detach(), True)
    torch.library.opcheck(torch.ops.dwlab.short_conv_update.default, token)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_compile_has_it_in_its_graph(layout):
    compiled = torch.compile(short_conv, backend="aot_eager", fullgraph=True)
    compare(torch.float32, 2, 8, 20, 4, True, "silu", True, layout, compiled)


def test_filters_are_laid_out_anew_for_each_call():
    w, bias = drawn(3, 4).detach(), torch.zeros(3, device=DEVICE)
    once = torch_short._filters(w, bias).clone()
    torch.testing.assert_close(torch_short._filters(w.mul_(2), bias), 2 * once)


@each_type
def test_a_module_loads_an_nn_conv1d(dtype):
    for K, bias in itertools.product((1, 4), (False, True)):
        theirs = torch.nn.Conv1d(6, 6, K, padding=K - 1, groups=6, bias=bias).to(DEVICE, dtype)
        mine = ShortConv1d(6, K, bias, "silu").to(DEVICE, dtype)
        mine.load_state_dict(theirs.state_dict())
        x = drawn(2, 6, 19, dtype=dtype).detach()
        y, state = mine(x, return_final_state=True)
        near(y, F.silu(theirs.double()(x.double())[..., :19]), dtype)
        with torch.no_grad():
            one = drawn(2, 6, dtype=dtype).detach()
            near(mine.update(one, state), mine(torch.cat([x, one[..., None]], -1))[..., -1].double(), dtype)


X, W = drawn(2, 4, 9).detach(), drawn(4, 3).detach()
STATE = drawn(2, 4, 2).detach()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: short_conv(X.double(), W), "x is torch.float64: pass a torch tensor of float32, float16, bfloat16"),
        (lambda: short_conv([1], W), "x is list: pass"),
        (lambda: short_conv(X[0], W), "x has shape (4, 9): (B, H, L) is needed"),
        (lambda: short_conv(X, W, layout="LBH"), "layout='LBH': BHL or BLH is needed"),
        (lambda: short_conv(X, W, layout="BLH"), "w has shape (4, 3): (9, K) is needed"),
        (lambda: short_conv(X.transpose(1, 2), W, layout="BLH"), "pass x.contiguous()"),
        (lambda: short_conv(X, W[:, None]), "w has shape (4, 1, 3): (4, K) is needed"),
        (lambda: short_conv(X, W[:, :0]), "w has no taps"),
        (lambda: short_conv(X, W.half()), "w is torch.float16 beside x of torch.float32"),
        (lambda: short_conv(X, W, W), "bias has shape (4, 3): (4) is needed"),
        (lambda: short_conv(X, W, activation="relu"), "activation='relu': None or 'silu' is needed"),
        (lambda: short_conv(X, W, initial_state=STATE[..., :1]), "state has shape (2, 4, 1): (2, 4, 2) is needed"),
        (lambda: short_conv(X, W.to("meta")), "w is on meta and x on"),
        (lambda: short_conv_update(X, STATE, W), "x has shape (2, 4, 9): (B, H) is needed"),
        (lambda: short_conv_update(X[..., 0].contiguous(), STATE.half(), W), "state is torch.float16"),
        (lambda: short_conv_update(X[..., 0].contiguous(), STATE, W.clone().requires_grad_()), "has no gradient"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(DispatchError, match=re.escape(message)):
        call()
