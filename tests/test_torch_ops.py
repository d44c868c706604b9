"""The convolution as an operator of PyTorch's: values, gradients, stages, bad input. On CPU tensors in simulated mode.

Skipped as a whole without PyTorch.
"""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")


from dwlab.gpu import target  # noqa: E402
from dwlab.kernels import dispatch, registry  # noqa: E402
from dwlab.kernels.dispatch import DispatchError  # noqa: E402
from dwlab.kernels.torch_layers import depthwise_conv2d  # noqa: E402
from dwlab.kernels.torch_ops import depthwise_conv1d, fft_conv1d, reference_conv1d  # noqa: E402
from dwlab.kernels.torch_short import short_conv  # noqa: E402
from dwlab.problems import PATHS, DepthwiseConv1d  # noqa: E402
from dwlab.problems.references import allowed_error, reference  # noqa: E402

if target.mode == "gpu" and not torch.cuda.is_available():
    pytest.skip("dwlab is in gpu mode and this PyTorch sees no GPU: install one for CUDA", allow_module_level=True)

DEVICE = "cuda" if target.mode == "gpu" else "cpu"
ODD = DepthwiseConv1d(3, 5, 13, 7, "same")
WIDE = DepthwiseConv1d(2, 5, 16, 8)  # 16 bytes go into its rows, and into its filters
PROBLEMS = [ODD, WIDE, DepthwiseConv1d(2, 3, 9, 12, 4), DepthwiseConv1d(1, 1, 1, 1)]


def tensors_of(problem, grad=True, seed=5):
    """x and w as leaves, and dy."""
    arrays = {**problem.inputs("forward", seed), "dy": problem.inputs("weight_grad", seed + 1)["dy"]}
    x, w, dy = (torch.from_numpy(arrays[name]).to(DEVICE) for name in ("x", "w", "dy"))
    return x.requires_grad_(grad), w.requires_grad_(grad), dy


def assert_right(problem, tensors, **got):
    """Each result within the rounding that float32 allows of the float64 answer."""
    x, w, dy = (tensor.detach().cpu().numpy() for tensor in tensors)
    for name, tensor in got.items():
        path = {"y": "forward", "dx": "input_grad", "dw": "weight_grad"}[name]
        inputs = {key: value for key, value in (("x", x), ("w", w), ("dy", dy)) if key in problem.arrays(path)}
        error = np.abs(tensor.detach().cpu().numpy() - reference(problem, path, inputs)[name])
        assert tensor.dtype == torch.float32 and tensor.device.type == DEVICE
        assert (error <= allowed_error(problem, path, inputs)[name]).all(), name


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_value_and_gradients_are_right(problem):
    x, w, dy = tensors_of(problem)
    y = depthwise_conv1d(x, w, problem.padding)
    assert y.shape == x.shape and y.is_contiguous() and y.requires_grad
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    assert_right(problem, (x, w, dy), y=y, dx=dx, dw=dw)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_pytorchs_own_forms_are_the_same_operator(problem):
    x, w, dy = (tensor.double() for tensor in tensors_of(problem, grad=False))
    want = torch.from_numpy(reference(problem, "forward", {"x": x.cpu().numpy(), "w": w.cpu().numpy()})["y"])
    for form in (reference_conv1d, fft_conv1d):
        torch.testing.assert_close(form(x, w, problem.padding).cpu(), want, rtol=1e-12, atol=1e-12)
    x.requires_grad_()
    w.requires_grad_()
    one, other = (torch.autograd.grad(f(x, w, problem.padding), (x, w), dy) for f in (reference_conv1d, fft_conv1d))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    "one", [one for one in registry.stages("depthwise1d") if one.order == 1], ids=lambda one: one.id
)
def test_a_stage_by_its_path(one, started):
    """What each stage's name starts is test_dispatch.py's."""
    x, w, dy = tensors_of(WIDE)
    y = depthwise_conv1d(x, w, stages={one.path: one.name})
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    assert_right(WIDE, (x, w, dy), y=y, dx=dx, dw=dw)
    ids = {path: dispatch.best(WIDE, path).id for path in ("forward", "input_grad", "weight_grad")}
    ids[one.path] = one.id
    if one.path == "backward":
        assert started == [ids["forward"], ids["backward"]]
    elif one.path == "forward":
        assert started == [ids["forward"], *(each.id for each in dispatch.launches(WIDE, "backward"))]
    else:
        assert started == [ids["forward"], ids["input_grad"], ids["weight_grad"]]


def test_only_the_gradients_that_are_needed_are_computed_and_they_arrive_in_any_layout(started):
    x, w, dy = tensors_of(ODD)
    best = {path: dispatch.best(ODD, path).id for path in ("forward", "input_grad", "weight_grad")}
    depthwise_conv1d(x, w.detach(), "same").backward(dy)
    depthwise_conv1d(x.detach(), w, "same").backward(dy)
    assert started == [best["forward"], best["input_grad"], best["forward"], best["weight_grad"]]
    assert_right(ODD, (x, w, dy), dx=x.grad, dw=w.grad)
    assert not depthwise_conv1d(x.detach(), w.detach(), "same").requires_grad
    with torch.no_grad():
        assert not depthwise_conv1d(x, w, "same").requires_grad
    x, w, dy = tensors_of(ODD)
    depthwise_conv1d(x, w, "same").sum().backward()  # one element, repeated
    assert_right(ODD, (x, w, torch.ones_like(x)), dx=x.grad, dw=w.grad)
    x.grad = w.grad = None
    depthwise_conv1d(x, w, "same").transpose(1, 2).backward(dy.transpose(1, 2).contiguous())
    assert_right(ODD, (x, w, dy), dx=x.grad, dw=w.grad)


@pytest.mark.parametrize("of", ["x", "w", "dy"])
def test_a_gradient_of_a_gradient_is_refused(of):
    """Also where what it would flow to is not dy: dx depends on w, and dw on x."""
    x, w, dy = tensors_of(ODD, grad=False)
    leaf = {"x": x, "w": w, "dy": dy}[of].requires_grad_()
    x, w = x + 0 * leaf.sum(), w + 0 * leaf.sum()
    grads = torch.autograd.grad(depthwise_conv1d(x, w, "same"), (x, w), dy, create_graph=True)
    plain = [tensor.detach().requires_grad_() for tensor in (x, w)]
    want = torch.autograd.grad(depthwise_conv1d(*plain, "same"), plain, dy)
    for grad, wanted in zip(grads, want, strict=True):
        torch.testing.assert_close(grad.detach(), wanted.detach(), rtol=1e-6, atol=1e-5)
        with pytest.raises(RuntimeError, match="differentiated once, and a gradient of its gradient was requested"):
            grad.sum().backward(retain_graph=True)


@pytest.mark.parametrize("of", ["x", "w"])
@pytest.mark.parametrize("call", [depthwise_conv1d, short_conv, depthwise_conv2d], ids=lambda one: one.__name__)
def test_forward_mode_is_refused_where_pytorch_would_take_it_as_zero(call, of):
    sizes = ((1, 3, 5, 5), (3, 1, 3, 3)) if call is depthwise_conv2d else ((2, 3, 8), (3, 4))
    given = {name: torch.rand(size, device=DEVICE) for name, size in zip("xw", sizes, strict=True)}
    with pytest.raises(DispatchError, match="no derivative in forward mode"):
        torch.func.jvp(lambda one: call(**given | {of: one}), (given[of],), (given[of],))


def test_autocast_keeps_16_bits_and_filters_may_have_them():
    x, w, dy = tensors_of(ODD)
    for filters in (w, w.detach().bfloat16().requires_grad_()):
        half = x.detach().bfloat16().requires_grad_()
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            y = depthwise_conv1d(half, filters, "same")
        assert y.dtype == torch.bfloat16
        dx, dw = torch.autograd.grad(y, (half, filters), dy.bfloat16())
        assert dx.dtype == torch.bfloat16 and dw.dtype == filters.dtype
        given = {"x": half, "w": filters, "dy": dy.bfloat16()}
        given = {name: one.detach().float().cpu().numpy() for name, one in given.items()}
        for path, got in (("forward", y), ("input_grad", dx), ("weight_grad", dw)):
            (want,) = reference(ODD, path, given).values()
            np.testing.assert_allclose(got.detach().float().cpu().numpy(), want, rtol=2.0**-7, atol=2e-2)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("stages", [None, "naive"])
def test_torch_compile_has_it_in_its_graph(stages):
    x, w, dy = tensors_of(ODD)
    compiled = torch.compile(lambda x, w: 2 * depthwise_conv1d(x, w, "same", stages), backend="eager", fullgraph=True)
    y = compiled(x, w)
    y.backward(dy)
    assert_right(ODD, (x, w, 2 * dy), y=y / 2, dx=x.grad, dw=w.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pytorch_finds_nothing_wrong_with_the_operator(dtype):
    x, w, _ = tensors_of(ODD)
    for rows in (x.detach().to(dtype).requires_grad_(), x.detach()[:0].to(dtype).requires_grad_()):
        torch.library.opcheck(torch.ops.dwlab.depthwise_conv1d.default, (rows, w, "same", ""))


def test_no_rows_no_result():
    x, w, _ = tensors_of(ODD)
    empty = x.detach()[:0].requires_grad_()
    y = depthwise_conv1d(empty, w, "causal")
    assert y.shape == empty.shape
    y.sum().backward()
    assert empty.grad.shape == empty.shape and not w.grad.any()


def test_dispatch_writes_into_the_tensors_that_are_given_and_autograd_knows_it():
    x, w, dy = tensors_of(ODD, grad=False)
    dx, dw = torch.full_like(x, torch.nan), torch.full_like(w, torch.nan)
    places = dx.data_ptr(), dw.data_ptr()
    got = dispatch.backward(dy, x, w, padding="same", dx=dx, dw=dw)
    assert got[0] is dx and got[1] is dw and (dx.data_ptr(), dw.data_ptr()) == places
    assert_right(ODD, (x, w, dy), dx=dx, dw=dw)
    factor = torch.ones_like(x, requires_grad=True)
    loss = (factor * dy).sum()  # needs dy again, for factor's gradient
    dispatch.forward(x, w, padding="same", y=dy)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


B, H, L, K = ODD.B, ODD.H, ODD.L, ODD.K
X, W, DY = tensors_of(ODD, grad=False)
OTHER = "cpu" if DEVICE == "cuda" else "meta"
MOVE = "x.cuda()" if DEVICE == "cuda" else "x.cpu(), or set DWLAB_TARGET=gpu before Python starts"

BAD = [
    ({"x": X.double()}, "x is float64; float32 is needed: pass x.float()"),
    ({"x": X.long()}, "x is int64; float32 is needed: pass x.float()"),
    ({"x": X.to(OTHER)}, f"x is on {OTHER} and dwlab runs in {target.mode} mode: pass {MOVE}"),
    ({"x": X.transpose(1, 2).contiguous().transpose(1, 2)}, "x is not C-contiguous, its axes 1 and 2 are exchanged"),
    ({"x": X[:1].expand(B, H, L)}, "x is not C-contiguous, it repeats elements"),
    ({"x": X.new_ones(B, H, 2 * L)[..., ::2]}, "x is not C-contiguous (strides (130, 26, 2)): pass x.contiguous()"),
    ({"x": X[:0]}, f"x has shape {(0, H, L)}: every size must be at least 1"),
    ({"w": W[:, None]}, f"w has shape {(H, 1, K)}; (H, K) is needed; PyTorch's conv1d has these filters reversed"),
    ({"x": X[:, 1:].contiguous()}, f"x has 4 channels {(B, 4, L)} and w 5 {(H, K)}"),
    ({"x": X.to_sparse()}, "x is torch.sparse_coo: pass x.to_dense()"),
    (
        {"x": torch.imag(X.to(torch.complex64).conj())[:1, :1, :1], "w": W[:1]},
        "x is a view that stands for its negative: pass x.resolve_neg()",
    ),
    ({"padding": "reflect"}, "padding 'reflect' is unknown"),
]


NO_STAGES = [
    ("nave", "no path has a stage 'nave'. The nearest is 'naive'"),
    ({"forwards": "naive"}, "stages has a path 'forwards'. The nearest is 'forward'"),
    ({"forward": "nave"}, "there is no stage 'nave' of forward. The nearest is 'naive'"),
    ({"forward": 3}, "stages['forward'] is 3: give a stage's name, or None for the best one"),
    (["naive"], "stages=['naive']: give a stage's name, a mapping from path to name, or None"),
]
TAKEN = ("on meta", "has shape (0,", "resolve_neg")  # by the operator: PyTorch gives it an empty one, or the negative


@pytest.mark.parametrize(
    ("function", "changed", "message"),
    [(dispatch.forward, *bad) for bad in BAD]
    + [(depthwise_conv1d, *bad) for bad in BAD if not any(one in bad[1] for one in TAKEN)]
    + [(depthwise_conv1d, {"stages": given}, message) for given, message in NO_STAGES],
)
def test_bad_tensors_and_stages_are_named_with_what_to_do(function, changed, message):
    given = {"x": X, "w": W, "padding": "same", **changed}
    with pytest.raises(DispatchError, match=re.escape(message)):
        function(**given)


@pytest.mark.parametrize(
    ("path", "changed", "message"),
    [
        ("forward", {"x": X.numpy(force=True)}, "x is a NumPy array and w a torch tensor: pass arrays of one kind"),
        ("forward", {"y": np.ones((B, H, L), np.float32)}, "x is a torch tensor and y a NumPy array: pass arrays of"),
        ("forward", {"y": X}, "y overlaps x in memory"),
        ("forward", {"y": torch.empty(B, H, L, dtype=torch.float64, device=DEVICE)}, "y is float64; float32 is needed"),
        ("forward", {"y": torch.empty(B, H, L, device=OTHER)}, f"y is on {OTHER} and dwlab runs in"),
        ("forward", {"y": torch.empty(B, L, H, device=DEVICE).mT}, "y is not C-contiguous and cannot take the result"),
        ("forward", {"y": torch.empty(B, H, L, device=DEVICE, requires_grad=True)}, "y requires grad, and what is"),
        ("forward", {"stream": 7}, "stream=7 with torch tensors: they run on torch's current stream; use `with torch"),
        ("input_grad", {"w": W.clone().requires_grad_()}, "w requires grad, and what is computed here has no gradient"),
        ("backward", {"dy": DY.clone().requires_grad_()}, "depthwise_conv1d, or pass dy.detach()"),
    ],
)
def test_bad_tensors_of_dispatch(path, changed, message):
    given = {"x": X, "w": W, "dy": DY, **changed}
    names = {"forward": ("x", "w"), "input_grad": ("dy", "w"), "backward": ("dy", "x", "w")}[path]
    more = {name: value for name, value in changed.items() if name not in names}
    with pytest.raises(DispatchError, match=re.escape(message)):
        getattr(dispatch, path)(*(given[name] for name in names), padding="same", **more)


def test_the_operator_takes_tensors_only():
    with pytest.raises(DispatchError, match=re.escape("x is a ndarray: pass a torch tensor (dispatch.forward")):
        depthwise_conv1d(X.numpy(force=True), W)
    for form in (reference_conv1d, fft_conv1d):
        with pytest.raises(DispatchError, match="x has shape"):
            form(X[0], W)
        with pytest.raises(DispatchError, match="padding must lie in"):
            form(X, W, K)
    assert set(PATHS) >= {"forward", "input_grad", "weight_grad"}
