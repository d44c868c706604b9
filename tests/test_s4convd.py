"""The model: its filter and block against sums written out, and the same whichever code convolves."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install -e '.[torch]'")

from dwlab.gpu import target  # noqa: E402
from dwlab.measure.baselines import full_precision  # noqa: E402
from dwlab.problems import DepthwiseConv1d  # noqa: E402
from dwlab.problems.references import reference  # noqa: E402
from dwlab.training import s4convd  # noqa: E402
from dwlab.training.s4convd import ModelError, S4ConvD  # noqa: E402

DEVICE = "cuda" if target.mode == "gpu" else "cpu"
SMALL = {"channels": 3, "blocks": 2, "states": 4, "taps": 7, "dropout": 0.0}


@pytest.fixture(autouse=True)
def float32():
    with full_precision():
        yield


def model(conv="torch", seed=0, **changes):
    torch.manual_seed(seed)
    return S4ConvD(**(SMALL | changes), conv=conv)


def test_the_filter_is_the_sum_over_states():
    torch.manual_seed(3)
    one = s4convd.Filter(channels=3, taps=5, states=4)
    with torch.no_grad():
        one.a_re += 0.3 * torch.randn(3, 4)
        w = one().numpy()
    c = torch.view_as_complex(one.c.detach()).numpy()
    step, a = one.log_step.detach().exp().numpy(), -np.exp(one.a_re.detach().numpy()) + 1j * one.a_im.detach().numpy()
    for h in range(3):
        for tap in range(5):
            terms = c[h] * (np.exp(step[h] * a[h]) - 1) / a[h] * np.exp(step[h] * a[h] * tap)
            assert w[h, tap] == pytest.approx(2 * terms.sum().real, abs=1e-5)
    assert w.dtype == np.float32 and w.shape == (3, 5) and w.flags.c_contiguous


def test_a_block_is_what_its_docstring_says():
    torch.manual_seed(1)
    block = s4convd.Block(4, 6, 3, 0.0, s4convd.convolution("fft"))
    x = torch.randn(2, 4, 9)
    with torch.no_grad():
        w = block.filter().double()
        y = torch.zeros(2, 4, 9, dtype=torch.float64)
        for t in range(9):
            for j in range(min(t, 5) + 1):
                y[:, :, t] += w[:, j] * x[:, :, t - j]
        y = torch.nn.functional.gelu(y + block.d * x)
        z = torch.einsum("oh,bht->bot", block.mix.weight[:, :, 0].double(), y) + block.mix.bias[:, None]
        want = x + z[:, :4] * torch.sigmoid(z[:, 4:])
        torch.testing.assert_close(block(x).double(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("length", "taps"), [(7, 7), (9, 4), (5, 11), (1, 3), (6, 1)])
@pytest.mark.parametrize("conv", s4convd.LIBRARY)
def test_pytorchs_own_ways_are_the_operator_and_its_gradients(conv, length, taps):
    problem = DepthwiseConv1d(3, 4, length, taps)
    arrays = problem.inputs("weight_grad") | {"w": problem.inputs("forward")["w"]}
    x, w = (torch.tensor(arrays[name], requires_grad=True) for name in ("x", "w"))
    y = s4convd.convolution(conv)(x, w)
    y.backward(torch.tensor(arrays["dy"]))
    for path, found in (("forward", y.detach()), ("input_grad", x.grad), ("weight_grad", w.grad)):
        inputs = {name: arrays[name] for name in problem.arrays(path)[:-1]}
        (want,) = reference(problem, path, inputs).values()
        np.testing.assert_allclose(found.numpy(), want, atol=3e-5, rtol=1e-5, err_msg=path)


@pytest.mark.parametrize("conv", [way for way in s4convd.ways() if way != "torch"])
def test_every_way_gives_the_same_loss_and_gradients(conv):
    features = torch.tensor(np.random.default_rng(5).normal(size=(2, 4, 9)), dtype=torch.float32, device=DEVICE)
    load = torch.rand(2, 9, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    found = {}
    for name in ("torch", conv):
        one = model(name).to(DEVICE)
        loss = s4convd.rmsle(one(features), load)
        loss.backward()
        found[name] = [loss.detach(), *(p.grad for p in one.parameters())]
    assert len(found[conv]) == len(found["torch"]) > 10
    for mine, theirs in zip(found[conv], found["torch"], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-4, atol=2e-6)


def test_no_hour_sees_the_future():
    one = model(blocks=3).eval()
    features = torch.randn(1, 4, 12)
    later = features.clone()
    later[..., 8:] += 5
    with torch.no_grad():
        a, b = one(features), one(later)
    assert torch.equal(a[:, :8], b[:, :8]) and not torch.allclose(a[:, 8:], b[:, 8:])


def test_the_papers_configuration():
    one = S4ConvD()
    per_block = 128 * (1 + 4 * 32) + 128 + 256 * 128 + 256
    assert sum(p.numel() for p in one.parameters()) == 4 * 128 + 128 + 4 * per_block + 128 + 1
    assert all(p.dtype == torch.float32 for p in one.parameters()) and one.blocks[0].filter.taps == 48


def test_rmsle_is_the_root_mean_squared_logarithmic_error():
    load = torch.tensor([[0.0, 1.5], [3.0, 0.2]])
    kwh = torch.tensor([[0.3, 1.0], [2.0, 0.2]])
    want = np.sqrt(np.mean((np.log1p(kwh.numpy()) - np.log1p(load.numpy())) ** 2))
    assert s4convd.rmsle(torch.log1p(kwh), load).item() == pytest.approx(want, rel=1e-6)
    right = torch.log1p(load).requires_grad_()
    s4convd.rmsle(right, load).backward()
    assert torch.equal(right.grad, torch.zeros(2, 2)), "a perfect prediction has a gradient, not NaN"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"channels": 0}, "channels must be a whole number from 1 up, not 0"),
        ({"taps": 2.5}, "taps must be .* not 2.5"),
        ({"blocks": True}, "blocks must be .* not True"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), not 1.0"),
        ({"conv": "naif"}, "no convolution 'naif'. The nearest is 'naive'"),
    ],
)
def test_models_that_cannot_be_built(changes, says):
    with pytest.raises(ModelError, match=says):
        S4ConvD(**(SMALL | changes))


@pytest.mark.parametrize("shape", [(2, 3, 9), (4, 9), (2, 9, 4)])
def test_features_of_another_shape_are_refused(shape):
    with pytest.raises(ModelError, match=r"features must be \(B, 4, L\)"):
        model()(torch.zeros(shape))
