"""The command that runs a network: what it prints, what it returns, what it refuses."""

import json
from dataclasses import replace

import pytest
from small_networks import cut, simulated, thin, tiny

torch = pytest.importorskip("torch", reason="networks run with PyTorch: pip install '.[torch]'")

from dwlab import __main__ as cli  # noqa: E402
from dwlab import inference  # noqa: E402
from dwlab.inference.weights import random_weights  # noqa: E402
from dwlab.kernels import choices  # noqa: E402
from dwlab.problems import networks  # noqa: E402
from dwlab.problems.networks import network  # noqa: E402

torch.set_num_threads(1)  # maps are tiny here: more threads wait for each other, where others use the CPU too


def command(capsys, *arguments):
    return cli.main(["infer", *arguments]), *capsys.readouterr()


@simulated
def test_the_command_checks_and_prints_no_time(capsys, monkeypatch):
    monkeypatch.setattr(networks, "network", lambda *a: cut(thin(network(*a), 8), "2.depthwise"))
    status, out, _ = command(capsys, "mobilenet_v2", "--resolution", "16")
    assert status == 0 and "agree with PyTorch" in out and "16 pixels" in out
    assert "µs" not in out and "Nothing is timed in simulated mode" in out
    status, out, _ = command(capsys, "mobilenet_v2", "--json", "--no-fused", "--dtype", "float16", "--layout", "NCHW")
    data = json.loads(out)
    assert status == 0 and data["check"]["ok"] and "times" not in data and data["launches"] is None
    assert (data["resolution"], data["dtype"], data["layout"]) == (32, "float16", "NCHW")
    assert all(len(step["layers"]) == 1 for step in data["steps"])
    status, out, _ = command(capsys, "mobilenet_v2", "--dtype", "int8", "--layout", "NHWC", "--resolution", "16")
    assert status == 0 and "int8, 16 pixels" in out and "bit by bit" in out and "µs" not in out
    assert "(allowed: 1.5 times that, and 25%)" in out


@simulated
def test_a_wrong_output_is_status_1(capsys, monkeypatch):
    made = tiny()
    wrong = inference.prepare(made, random_weights(made, 8), keep=True)
    monkeypatch.setattr(networks, "network", lambda *a: made)
    monkeypatch.setattr(inference, "prepare", lambda *a, **k: replace(wrong, weights=random_weights(made)))
    status, out, _ = command(capsys, "mobilenet_v2")
    assert status == 1 and "steps are wrong" in out


@simulated
def test_the_command_takes_a_models_weights(capsys, monkeypatch, tmp_path):
    (tmp_path / "w.py").write_text(
        "from test_weights import MobileNetV2, shaken\ndef make(): return shaken(MobileNetV2())"
    )
    # The kernels' part is what other tests are about: here PyTorch does it, so that a whole network is quick.
    monkeypatch.setattr(choices, "takers", lambda problem, *_, gpu=None: ())
    given, prepare = [], inference.prepare
    monkeypatch.setattr(inference, "prepare", lambda *a, **k: given.append(a[1]) or prepare(*a, **k, fallback=True))
    status, out, _ = command(capsys, "mobilenet_v2", "--weights", f"{tmp_path / 'w.py'}:make", "--json")
    assert status == 0 and json.loads(out)["check"]["ok"]
    wanted = random_weights(network("mobilenet_v2"))
    assert all(given[0][name]["w"].shape == one["w"].shape and (given[0][name]["w"] != one["w"]).any()
               for name, one in wanted.items())  # fmt: skip


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["mobilnet_v2"], "there is no network 'mobilnet_v2'. The nearest is 'mobilenet_v2'"),
        (["mobilenet_v2", "--batch", "0"], "argument --batch: '0' is no whole number of at least 1"),
        (
            ["mobilenet_v2", "--dtype", "bfloat16", "--resolution", "32"],
            "bfloat16 is not run: use float32, float16 or int8",
        ),
        (["mobilenet_v2", "--weights", "none.pt"], "none.pt: give FILE.py:MAKE"),
        (["mobilenet_v2", "--fuse"], "infer has no option '--fuse'; is it --fused?"),
    ],
)
def test_commands_that_cannot_be_carried_out(capsys, arguments, words):
    status, out, error = command(capsys, *arguments)
    assert status == 2 and not out and words in error and error.count("\n") == 1
