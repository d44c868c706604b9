"""Training: the same losses however often it is stopped, and what stops it says why."""

import dataclasses
import io
import json
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from dwlab.gpu import target
from dwlab.training import meters
from dwlab.training import train as training
from dwlab.training.train import CheckpointError, Config, Data, NotFinite, TrainingError

try:
    import torch
except ModuleNotFoundError:
    torch = None
needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed: pip install -e '.[torch]'")
ROOT = Path(__file__).resolve().parents[1]


def made(windows=11, hours=9, seed=0):
    """Windows that no meter read."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(windows, 4, hours)).astype(np.float32)
    return Data(features, random.uniform(0, 2, (windows, hours)).astype(np.float32), f"made {windows} {hours} {seed}")


DATA = made()
# 5 steps an epoch; dropout on, so that its random state matters
TINY = Config(channels=3, blocks=1, states=2, taps=5, batch=2, dropout=0.3, seed=7)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors of some dozen numbers: threads would only wait for each other."""
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def through():
    """The losses of 12 steps without a stop: two epochs and a bit."""
    return training.train(TINY, DATA, steps=12).losses


# the data -------------------------------------------------------------------------------------------------------------


def hours(start, values, column="value"):
    first = np.datetime64(start)
    rows = [f"{first + i * np.timedelta64(1, 'h')},{v}" for i, v in enumerate(values)]
    return f"start,{column}\n" + "\n".join(rows) + "\n"


@pytest.fixture
def files(tmp_path):
    def write(load, warm):
        (tmp_path / "load.csv").write_text(load)
        (tmp_path / "warm.csv").write_text(warm)
        return tmp_path / "load.csv", tmp_path / "warm.csv"

    return write


def test_the_shipped_windows_as_training_data():
    data = training.load_data()
    assert data.features.shape == (len(data), 4, 48) and data.load.shape == (len(data), 48) and len(data) > 1500
    assert abs(data.features.mean()) < 1e-4 and data.load.min() >= 0
    assert "24 repeated rows" in " ".join(data.about) and "267 for no temperature" in data.about[-1]
    assert data.digest != training.load_data(stride=48).digest


def test_files_of_ones_own_in_any_order(files):
    stamps = [f"2020-10-{d:02d} {h:02d}:00" for d in range(22, 29) for h in range(24)]
    rows = [f"{stamp},{1 + i % 7}" for i, stamp in enumerate(stamps)]
    warm = "dt,tempC\n" + "".join(f"{stamp},{i / 10}\n" for i, stamp in enumerate(stamps))

    def loaded(rows):
        return training.load_data(files("start,value\n" + "\n".join(rows), warm), hours=24)

    whole = loaded(rows)
    assert len(whole) == 6 and whole.about == ()
    assert loaded(rows[::-1]).digest == whole.digest  # newest first: the same data


def test_data_that_cannot_be_trained_on_is_named(files):
    warm = hours("2020-01-01T00", range(200), column="tempC")
    with pytest.raises(TrainingError, match=r"load has a load of -3 kWh in the hour from 2020-01-03T02 \(UTC\)"):
        training.load_data(files(hours("2020-01-01T00", [1] * 50 + [-3] + [1] * 149), warm))
    with pytest.raises(TrainingError, match="load gives no window without a gap .left out: none"):
        training.load_data(files(hours("2020-01-01T00", [1] * 48), warm))
    with pytest.raises(TrainingError, match="left out: 3 for no temperature"):
        training.load_data(files(hours("2010-01-01T00", [1] * 97), warm))
    with pytest.raises(TrainingError, match="two files, load and temperature, not 1"):
        training.load_data(["load.csv"])


def test_an_epoch_is_a_permutation_and_another_each_time():
    config = dataclasses.replace(TINY, batch=3)
    first, second = training.order(config, 11, 0), training.order(config, 11, 1)
    assert first.shape == (3, 3) and len(set(first.ravel())) == 9
    assert not np.array_equal(first, second) and np.array_equal(first, training.order(config, 11, 0))
    assert not np.array_equal(first, training.order(dataclasses.replace(config, seed=8), 11, 0))
    # more steps than windows: one permutation after another
    long = training.order(dataclasses.replace(config, epoch_steps=9), 11, 0).ravel()
    assert len(long) == 27 and set(long[:11]) == set(long[11:22]) == set(range(11))
    with pytest.raises(TrainingError, match="a batch of 64 is more than the 11 windows"):
        training.order(Config(), 11, 0)


# the training, and what stops it --------------------------------------------------------------------------------------


@needs_torch
def test_the_loss_falls_and_the_seed_decides():
    config = dataclasses.replace(TINY, dropout=0.0, learning_rate=0.05)
    one, two = (training.train(config, DATA, epochs=12).losses for _ in range(2))
    assert one == two and len(one) == 60
    assert np.mean(one[-10:]) < 0.8 * np.mean(one[:10])
    assert training.train(dataclasses.replace(config, seed=8), DATA, steps=3).losses != one[:3]


@needs_torch
def test_pytorchs_random_state_is_left_alone():
    torch.manual_seed(3)
    want = torch.rand(2)
    torch.manual_seed(3)
    training.train(TINY, DATA, steps=2)
    assert torch.equal(torch.rand(2), want)


@needs_torch
@pytest.mark.parametrize("stop", [1, 5, 7])
def test_a_resume_is_bit_for_bit_the_same(tmp_path, through, stop):
    file = tmp_path / "run.pt"

    def interrupt(step, total, loss):
        assert total == 12
        if step == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training.train(TINY, DATA, steps=12, checkpoint=file, save_every=2, progress=interrupt)
    saved = training.load(file)["step"]
    assert saved == stop // 2 * 2
    rest = training.train(TINY, DATA, steps=12, checkpoint=file, resume=True)
    assert rest.losses == through and rest.resumed_at == saved
    assert training.load(file)["step"] == 12


@needs_torch
def test_a_killed_training_resumes_as_if_nothing_had_happened(tmp_path):
    steps, file = 4000, tmp_path / "run.pt"
    script = f"""
        import sys
        sys.path[:0] = {[str(ROOT), str(ROOT / "tests")]!r}
        from test_training import DATA, TINY, torch, training
        torch.set_num_threads(1)
        training.train(TINY, DATA, steps={steps}, checkpoint={str(file)!r}, save_every=1)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 600
        while not file.exists() or not training.load(file)["step"]:
            assert child.poll() is None, child.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.3)  # some tens of steps, each with a save: it is killed in the middle of one
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        child.stderr.close()
    done = training.load(file)["step"]
    assert 0 < done < steps
    rest = training.train(TINY, DATA, steps=done + 6, checkpoint=file, resume=True)
    assert rest.resumed_at == done
    assert rest.losses == training.train(TINY, DATA, steps=done + 6).losses
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"], "what was half written is gone"


@needs_torch
@pytest.mark.skipif(target.mode != "gpu", reason="needs a GPU: resumes a training on it")
def test_on_a_gpu_a_resumed_training_goes_on(tmp_path):
    file, config = tmp_path / "run.pt", dataclasses.replace(TINY, device="cuda", stage="best")
    straight = training.train(config, DATA, steps=12).losses
    first = training.train(config, DATA, steps=7, checkpoint=file).losses
    rest = training.train(config, DATA, steps=12, checkpoint=file, resume=True)
    assert rest.resumed_at == 7 and rest.losses[:7] == first
    np.testing.assert_allclose(rest.losses, straight, rtol=1e-5)  # dropout went on where it was


@needs_torch
def test_a_loss_that_is_nan_stops_at_its_step_and_keeps_the_checkpoint(tmp_path):
    drawn = np.concatenate([training.order(TINY, 11, epoch) for epoch in range(2)])
    step = next(i for i, batch in enumerate(drawn) if i and not set(batch) <= set(drawn[:i].ravel()))
    poisoned = next(i for i in drawn[step] if i not in drawn[:step])
    features = DATA.features.copy()
    features[poisoned, 0, 3] = np.nan
    file = tmp_path / "run.pt"
    says = rf"the loss is nan .* at step {step + 1} \(epoch {step // 5 + 1}, step {step % 5 + 1} of 5\); parameters and"
    with pytest.raises(NotFinite, match=says):
        training.train(TINY, dataclasses.replace(DATA, features=features), steps=12, checkpoint=file, save_every=1)
    saved = training.load(file)
    assert saved["step"] == step and all(torch.isfinite(value).all() for value in saved["model"].values())


@needs_torch
def test_a_gradient_that_is_infinite_stops_before_the_parameters(monkeypatch):
    real = training.backward

    def poisoned(state, features, load):
        loss = real(state, features, load)
        if state.step == 2:
            state.model.readout.bias.grad[0] = float("inf")
        return loss

    monkeypatch.setattr(training, "backward", poisoned)
    with pytest.raises(NotFinite, match="the norm of the gradient inf at step 3 "):
        training.train(TINY, DATA, steps=5)


# checkpoints, and values that make no sense ---------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    file = tmp_path / "run.pt"
    training.train(TINY, DATA, steps=3, checkpoint=file)
    return file


def resume(file, config=TINY, data=DATA):
    return training.train(config, data, steps=5, checkpoint=file, resume=True)


@needs_torch
@pytest.mark.parametrize("part", [0, 0.01, 0.9999])
def test_a_truncated_checkpoint_is_refused_and_left(saved, part):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(CheckpointError, match="run.pt is no checkpoint, or damaged"):
        resume(saved)
    assert saved.read_bytes() == whole[: int(part * len(whole))]


@needs_torch
def test_another_configuration_and_other_data_are_refused_by_what_differs(saved):
    for field, value in {"stage": "fft", "channels": 4, "learning_rate": 0.02, "seed": 8}.items():
        says = f"another configuration: {field} is {getattr(TINY, field)!r} in the checkpoint and {value!r} now"
        with pytest.raises(CheckpointError, match=f"run.pt is of {says}"):
            resume(saved, dataclasses.replace(TINY, **{field: value}))
    with pytest.raises(CheckpointError, match="another configuration: data is 'made 11 9 0'.*'made 11 9 1' now"):
        resume(saved, data=made(seed=1))


def sealed(content):
    """What torch.save makes of any content."""
    body = io.BytesIO()
    torch.save(content, body)
    return body.getvalue()


@needs_torch
def test_what_is_no_checkpoint_is_refused_and_not_executed(saved, tmp_path):
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return Path.touch, (ran,)

    for content in (sealed({"config": Evil()}), pickle.dumps(Evil()), sealed([1]), b"a letter", sealed({"config": 3})):
        saved.write_bytes(content)
        with pytest.raises(CheckpointError, match="run.pt is no checkpoint"):
            resume(saved)
    assert not ran.exists()


@needs_torch
@pytest.mark.parametrize("lost", ["optimizer", "random_cpu", "losses", "model"])
def test_a_checkpoint_that_lacks_a_part(saved, lost):
    content = training.load(saved)
    del content[lost]
    saved.write_bytes(sealed(content))
    with pytest.raises(CheckpointError, match=f"run.pt is no checkpoint of this dwlab, or damaged: KeyError.'{lost}'"):
        resume(saved)


@needs_torch
def test_files_that_are_in_the_way(saved, tmp_path):
    with pytest.raises(CheckpointError, match="run.pt exists: go on from it with resume, or name another file"):
        training.train(TINY, DATA, steps=3, checkpoint=saved)
    with pytest.raises(CheckpointError, match="no checkpoint '.*none.pt': start without resume"):
        resume(tmp_path / "none.pt")
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        resume(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be written"):
        training.train(TINY, DATA, steps=3, checkpoint=tmp_path / "none" / "run.pt")
    with pytest.raises(CheckpointError, match="name its file"):
        training.train(TINY, DATA, steps=3, resume=True)


@needs_torch
@pytest.mark.parametrize(
    ("field", "value"), [("batch", 0), ("channels", 1.5), ("learning_rate", -1.0), ("dropout", 1.0), ("stage", "naif")]
)
def test_values_that_make_no_sense(field, value):
    with pytest.raises((TrainingError, ValueError), match=f"(?i){field}|{value}"):
        training.train(dataclasses.replace(TINY, **{field: value}), DATA, steps=1)


@needs_torch
def test_kernels_where_they_cannot_run():
    if target.mode == "gpu":
        with pytest.raises(TrainingError, match="stage naive in gpu mode .*: use --device cuda"):
            training.train(dataclasses.replace(TINY, stage="naive"), DATA)
        return
    with pytest.raises(TrainingError, match="a step has 115,605,504 products.*--blocks, or --stage torch|takes long"):
        training.check_stage(dataclasses.replace(TINY, stage="naive", channels=128, batch=100, blocks=4, taps=48), 48)
    if not torch.cuda.is_available():
        with pytest.raises(TrainingError, match="device cuda: PyTorch sees no GPU here"):
            training.train(dataclasses.replace(TINY, device="cuda"), DATA)


# the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs train on a few windows of the first meter: (status, stdout, stderr)."""
    from dwlab import __main__ as cli

    few = meters.load_windows((0,), stride=24 * 90)
    monkeypatch.setattr(meters, "load_windows", lambda **_: few)

    def command(*arguments):
        small = ("--channels", "2", "--blocks", "1", "--batch", "4", "--device", "cpu")
        return cli.main(("train", *small, *arguments)), *capsys.readouterr()

    return command


@needs_torch
def test_the_command_trains_saves_and_resumes(run, tmp_path):
    file = tmp_path / "run.pt"
    status, out, err = run("--epochs", "2", "--checkpoint", str(file))
    assert status == 0 and "11 windows of 48 hours" in out and "convolution: torch, on cpu" in out, (out, err)
    assert out.count("\n") == 6
    status, out, _ = run("--epochs", "3", "--checkpoint", str(file), "--resume", "--json")
    told = json.loads(out)
    assert status == 0 and told["resumed_at"] == 4 and told["steps"] == 6 == len(told["losses"])
    assert told["config"]["batch"] == 4 and told["windows"] == 11 and told["epochs"] == 3
    status, out, _ = run("--epochs", "3", "--checkpoint", str(file), "--resume")
    assert status == 0 and "all 6 steps are done" in out and "resumed after step 6" in out


@needs_torch
def test_wrong_commands_get_one_line(run, tmp_path):
    file = tmp_path / "run.pt"
    assert run("--checkpoint", str(file))[0] == 0
    for arguments, says in (
        (("--stage", "naif"), "no convolution 'naif'. The nearest is 'naive'"),
        (("--checkpoint", str(file)), "exists: go on from it with resume"),
        (("--checkpoint", str(file), "--resume", "--seed", "3"), "seed is 0 in the checkpoint and 3 now"),
        (("--batch", "400"), "a batch of 400 is more than the 11 windows"),
        (("--data", "none.csv", "none.csv"), "none.csv is not there"),
        (("--learning-rate", "nan"), "is no number above 0"),
    ):
        status, out, err = run(*arguments)
        assert status == 2 and says in err and err.count("\n") == 1 and "Traceback" not in err, err


def test_without_pytorch_the_extra_is_named(run, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    status, out, err = run()
    assert (status, out) == (2, "") and "PyTorch is not installed: run pip install -e '.[torch]'" in err
