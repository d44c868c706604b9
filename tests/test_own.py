"""Models of one's own as modules: values in three types, torch.compile, the command, bad input."""

import dataclasses
import functools
import json
import re
from types import SimpleNamespace

import pytest
from fakes import recorded, script
from small_networks import simulated

torch = pytest.importorskip("torch", reason="models are PyTorch's: pip install '.[torch]'")

from test_traced import FILE, Twice, images, mobile  # noqa: E402
from test_weights import block, shaken  # noqa: E402

from dwlab.gpu import target  # noqa: E402
from dwlab.inference import comparison, own  # noqa: E402
from dwlab.measure.timing import Timing  # noqa: E402
from dwlab.problems.networks import InferenceError  # noqa: E402

torch.set_num_threads(1)
nn, F, DEVICE = torch.nn, torch.nn.functional, "cuda" if target.mode == "gpu" else "cpu"


class Excite(nn.Module):
    def __init__(self, C, act):
        super().__init__()
        self.one, self.two, self.act = nn.Conv2d(C, 10, 1), nn.Conv2d(10, C, 1), act

    def forward(self, x):
        x = self.act(x)
        return x + x * F.hardsigmoid(self.two(F.relu(self.one(F.adaptive_avg_pool2d(x, 1)))))


class Shuffle(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.body = nn.Sequential(
            *block(C, C), *block(C, C, 3, groups=C, activation=False), *block(C, C), nn.ReLU(True)
        )

    def forward(self, x):
        kept, x = x.chunk(2, 1)
        y = torch.cat((kept, self.body(x)), 1)
        N, C, H, W = y.shape
        return y.view(N, 2, C // 2, H, W).transpose(1, 2).contiguous().view(N, C, H, W)


class ConvNeXt(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(C, C, 7, padding=3, groups=C), nn.LayerNorm(C)
        self.up, self.down = nn.Linear(C, 64), nn.Linear(64, C)

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + 0.5 * self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


MODELS = {  # and in float32: kernels of ours, of these for two layers, nodes by PyTorch
    "mobilenet": (mobile, (2, 1, 4)),
    "swish": (lambda: [nn.Conv2d(3, 32, 3), *block(32, 32, 5, 2, 32, False), Excite(32, nn.Hardswish())], (2, 1, 4)),
    "silu": (lambda: [nn.Conv2d(3, 32, 3), *block(32, 32, activation=False), nn.SiLU(), nn.MaxPool2d(2)], (1, 0, 2)),
    "shuffle": (lambda: [nn.Conv2d(3, 64, 3, 2), Shuffle(32), nn.AvgPool2d(2)], (2, 1, 11)),
    "convnext": (lambda: [nn.Conv2d(3, 32, 2, 2), ConvNeXt(32), nn.GELU(), nn.AdaptiveAvgPool2d(1)], (2, 1, 8)),
    "twice": (lambda: [nn.Conv2d(3, 32, 4, 4), Twice()], (4, 1, 4)),
}


def model(name):
    torch.manual_seed(3)
    return shaken(nn.Sequential(*MODELS[name][0]())).to(DEVICE)


@pytest.mark.family(0.2)  # tests/parts.py
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_models_are_right_to_the_types_tolerance(name, dtype):
    theirs, x = model(name).to(dtype), images(dtype=dtype).to(DEVICE)
    made = own.from_torch(theirs, x)
    found, steps = own.compare(made, theirs, x), made.plan.steps
    assert found.ok and [one.layers for one in found.steps] == [one.layers for one in steps], str(found)
    if dtype == torch.float32:
        others = made.plan.to_dict()["pytorch"]
        assert (len(steps), sum(step.fused for step in steps), len(others)) == MODELS[name][1] and all(others.values())
        assert all(one.requires_grad and one.is_contiguous() for one in theirs.parameters())
        for one in made.graph.parameters():
            one.data[0] += 1  # of the kernels and what PyTorch runs, so that the whole shows it
        found = own.compare(made, theirs, x)
        assert not found.ok and not comparison.near(found.error, found.torch_error)


def test_maps_that_vanish_in_the_type_are_no_agreement():
    theirs = nn.Sequential(*(nn.Conv2d(C, 32, 1, bias=False) for C in (3, 32, 32))).eval()
    for one in theirs.parameters():
        one.data.mul_(1e-3)
    theirs, x = theirs.half().to(DEVICE), images(dtype=torch.float16).to(DEVICE)
    found = own.compare(own.from_torch(theirs, x), theirs, x)
    assert not found.ok and found.error == found.torch_error == 1 and "nothing says whether they agree" in str(found)


def test_a_way_whose_output_differs_has_no_time(monkeypatch, tmp_path):
    theirs, x = model("silu"), images().to(DEVICE)
    made, record_own = own.from_torch(theirs, x), script("record_own")
    ran, timing = [], lambda us: Timing(us, us, us, 1, 1, "graph", "warm")
    monkeypatch.setattr(own.baselines, "captured", lambda call, _: (SimpleNamespace(replay=lambda: None), call()))
    monkeypatch.setattr(own.baselines, "time_graph", lambda graph: ran.append(graph) or timing(9.0 - len(ran)))
    calls = own.ways(made, theirs, x, compiled=False)
    assert [one.split()[0] for one in calls] == ["dwlab", "PyTorch", "PyTorch"]
    wrong = list(calls)[1]
    calls[wrong] = functools.partial(lambda given: theirs(given) + 1, x)
    found = own.measure(calls)
    assert [one.time is None for one in found.baselines] == [True, False] and len(ran) == 2
    assert "differs from ours by" in found.baselines[0].failure and found.speedup == 7.0 / 8.0
    task = record_own.Task("silu", "float32", (1,))
    ready = {"own": made, "compared": own.compare(made, theirs, x), "calls": calls}
    rows = record_own.measure(task, 1, ready)
    (row,) = recorded(tmp_path, sections={"own": rows["own"]}).sections["own"]
    assert row["speedup_vs_peer"] == pytest.approx(5.0 / 6.0) and row["kernels"] == 1 and row["operations"] == 2
    assert len(rows["peers"]) == 2 and row["error"] <= 1e-5
    lost = dataclasses.replace(ready["compared"], torch_error=1.0)
    assert record_own.measure(task, 1, ready | {"compared": lost})["own"][0]["failure"].startswith("WRONG: ")
    monkeypatch.setattr(own.baselines, "captured", lambda *_: 1 / 0)
    with pytest.raises(InferenceError, match="dwlab eager, NHWC: it does not run: ZeroDivisionError"):
        own.measure(calls)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_kernels_relu_makes_0_of_a_nan_and_it_is_said(dtype):
    theirs, x = nn.Sequential(nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 1), nn.ReLU()), images(dtype=dtype).to(DEVICE)
    made, x[0, 0, 0, 0] = own.from_torch(theirs.eval().to(x), x), torch.nan
    assert theirs(x).isnan().any() > made(x).isnan().any() and str(made).endswith(own.NAN)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.filterwarnings("error:Dynamo detected")
def test_torch_compile_has_it_in_one_graph():
    theirs, x = model("mobilenet"), images().to(DEVICE)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        y = torch.compile(own.from_torch(theirs, x), backend="eager", fullgraph=True)(x)
        assert torch.allclose(y, theirs(x), atol=1e-5)


@pytest.mark.parametrize(
    "x, words",
    [
        (images(2, 3, 16, 16), "x is (2, 3, 16, 16) torch.float32 on "),
        (images().half(), "torch.float16 on"),
        (images().to("meta"), "torch.float32 on meta; the example was (1, 3, 16, 16) torch.float32 on "),
        (3, "x is int; the example was"),
    ],
)
def test_an_input_that_is_not_like_the_example_is_refused(x, words):
    made = own.from_torch(model("silu"), images().to(DEVICE))
    with pytest.raises(InferenceError, match=re.escape(words)):
        made(x)
    with pytest.raises(InferenceError, match="the example is on meta; here these kernels run on"):
        own.from_torch(model("silu"), images().to("meta"))


@simulated
def test_the_command_runs_a_model_of_a_file(run, tmp_path):
    (tmp_path / "a.py").write_text(FILE)
    file = str(tmp_path / "a.py")
    status, out, _ = run("infer", f"{file}:both", "--dtype", "bfloat16", "--json")
    found = json.loads(out)
    assert status == 0 and found["check"]["ok"] and list(found["plan"]["pytorch"]) == ["0"] and "times" not in found
    status, out, _ = run("infer", f"{file}:make", "--resolution", "6")
    assert status == 0 and "agree with PyTorch" in out and "Nothing is timed" in out
    status, out, error = run("infer", f"{file}:make", "--tune")
    assert status == 2 and not out and "--tune is for the networks" in error and error.count("\n") == 1
