"""Models of one's own as networks: what is a layer, why PyTorch runs the rest, plans for any GPU, bad input."""

import re

import pytest

torch = pytest.importorskip("torch", reason="models are PyTorch's: pip install '.[torch]'")

from test_weights import Inverted, block, shaken  # noqa: E402

from dwlab import inference  # noqa: E402
from dwlab.planner import plan, traced  # noqa: E402

nn, F = torch.nn, torch.nn.functional


class Twice(nn.Module):
    """A module that is called twice, maps that two read, sums with an earlier and a later map."""

    def __init__(self):
        super().__init__()
        self.one, self.norm = block(32, 32, activation=False)
        self.two = nn.Conv2d(32, 32, 3, 1, "same", groups=32)

    def forward(self, x):
        y = self.norm(self.one(F.relu(self.norm(self.one(x)))))
        z = self.two(y)
        return y + F.gelu(z, approximate="tanh"), self.two(z) + self.one(z) + x


class Bent(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def mobile():
    return [*block(3, 16, 3, 2), Inverted(16, 32, 16, 1), nn.Flatten(), nn.Linear(1024, 10)]


def model(*layers):
    torch.manual_seed(3)
    return shaken(nn.Sequential(*(layers or mobile())))


def images(*sizes, dtype=torch.float32):
    return torch.randn(sizes or (1, 3, 16, 16), generator=torch.Generator().manual_seed(1)).to(dtype)


def test_what_somebody_else_reads_stays_and_each_call_of_a_module_is_a_layer():
    made = traced.trace(model(Twice())[0], images(1, 32, 6, 6))[0]
    assert [(one.name, one.problem.activation, one.residual) for one in made.layers if one.planned] == [
        ("one", "relu", ""), ("conv2d_1", "none", ""), ("two", "none", ""), ("conv2d_3", "none", ""),
        ("conv2d_4", "none", "conv2d_3"),
    ]  # fmt: skip
    assert made.joint(1) == "add adds what conv2d_1 writes"
    with pytest.raises(ValueError, match="Twice is a model of your own"):
        inference.prepare(made)


@pytest.mark.parametrize(
    "layer, why",
    [
        (nn.Conv2d(16, 16, (1, 3), groups=16), "not square"),
        (nn.Conv2d(16, 16, 3, dilation=2, groups=16), "dilated"),
        (nn.Conv2d(16, 16, 4, padding="same", groups=16), "padding must lie in 0..K-1"),
        (nn.Conv2d(16, 16, 3, padding="valid", groups=16), ""),
        (nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect", groups=16), ""),
        (nn.Conv2d(16, 32, 3, groups=16), "3×3, stride 1, 16 groups"),
        (nn.Conv2d(16, 16, 1, 2), "1×1, stride 2, 1 groups"),
        (nn.utils.parametrizations.weight_norm(nn.Conv2d(16, 16, 1)), "neither depthwise nor pointwise"),
        (nn.Linear(6, 6), "its axes are not those of 0"),
    ],
    ids=str,
)
def test_a_layer_that_is_not_ours_says_why(layer, why):
    layers = traced.trace(model(nn.Conv2d(16, 16, 1), layer), images(1, 16, 6, 6))[0].layers
    found = next(one for one in layers if one.name in ("1", "conv2d_1"))
    assert why in found.note and found.planned == (not why)


@pytest.mark.parametrize("gpu", ["h200", "a100", "l4", "t4", "gtx1660"])
def test_a_plan_has_times_of_kernels_that_start_there_and_says_what_pytorch_runs(gpu):
    made, old = plan(traced.trace(model(), images())[0], gpu), gpu in ("t4", "gtx1660")
    assert [one.untimed for one in made.steps].count(True) == 2 * old and any(one.fused for one in made.steps) != old
    rows, others = {row[0]: (row[2], row[-1]) for row in made.rows()}, made.to_dict()["pytorch"]
    assert rows["linear"] == ("PyTorch", "neither depthwise nor pointwise") and others["view"] == rows["linear"][1]
    assert (rows["3.conv.0.0"][0] == "PyTorch") == ("of unknown time" in rows["3.conv.0.0"][1]) == old
    assert ("in 1 kernel, predicted" in made.times()) == old


SMALL = nn.Sequential(nn.Conv2d(3, 8, 1)).eval()


@pytest.mark.parametrize(
    "made, example, words",
    [
        (F.relu, images(), "a function in training, or no model: give"),
        (nn.Sequential(nn.Conv2d(3, 8, 1)), images(), "a Sequential in training"),
        (SMALL, [1], "the example is list: give images"),
        (SMALL, images(3, 16, 16), "(3, 16, 16) float32: give images"),
        (SMALL, images().double(), "float64: give images"),
        (SMALL, images().half(), "0.weight is torch.float32, cpu; the example torch.float16"),
        (nn.Conv2d(3, 8, 1, device="meta").eval(), images(), "weight is torch.float32, meta; the example"),
        (SMALL, images() / 0, "the example holds numbers that are not finite"),
        (Bent().eval(), images(), "torch.export does not trace Bent"),
        (model(nn.Conv2d(4, 4, 3)), images(), "torch.export does not trace Sequential"),
        (model(nn.Conv2d(3, 4, 3)), images(), "no depthwise or pointwise layer"),
    ],
)
def test_bad_input_is_one_clear_error(made, example, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        traced.trace(made, example)
    assert "\n" not in str(error.value)


FILE = """
import torch
def make(): return torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.Conv2d(32, 32, 1))
def both(): return make().eval(), torch.ones(2, 3, 8, 8)
def nothing(): return 3
"""


def test_the_command_plans_a_model_of_a_file(run, tmp_path):
    (tmp_path / "a.py").write_text(FILE)
    file = str(tmp_path / "a.py")
    status, out, error = run("plan", f"{file}:make", "--gpu", "t4", "--batch", "2", "--dtype", "float16")
    assert status == 0 and not error and "Sequential on Tesla T4, batch 2, NHWC, float16" in out and "PyTorch" in out
    assert run("plan", f"{file}:both", "--json")[0] == 0
    for arguments, words in (
        ((f"{file}:mak",), "has no attribute 'mak'"),
        ((f"{file}:both", "--batch", "3"), "images without --batch"),
        ((f"{file}:nothing",), "nothing() returns 3: give FILE.py:MAKE"),
        ((f"{file}:make", "--dtype", "int8"), "is not run in int8"),
        ((f"{file}:make", "--layout", "NHCW"), "layout 'NHCW' is unknown"),
        ((f"{tmp_path}/b.py:make",), "there is no file"),
    ):
        status, out, error = run("plan", *arguments)
        assert status == 2 and not out and words in error and error.count("\n") == 1
