"""The doctor: what it finds in given facts, what it does not find where nothing is wrong, and this machine as it is."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwlab import records
from dwlab.gpu import driver, target
from dwlab.kernels import digests
from dwlab.setup import doctor
from dwlab.setup.doctor import Facts, Kernel

H200, P100, K80 = driver.Device("H200", (9, 0)), driver.Device("P100", (6, 0)), driver.Device("K80", (3, 7))
HIDDEN = driver.Driver(True, (13, 0), "580.159", (), "the driver sees no GPU (cuInit returned 100)")
RIGHT, FAILED = Kernel(True, True, doctor.RIGHT), Kernel(True, False, "CudaAPIError: [222] unsupported PTX version")
NO_DRIVER = "no NVIDIA driver is installed"

LAPTOP = Facts(
    versions=dict.fromkeys((*doctor.NEEDED, *doctor.USEFUL), "1.0"),
    reason=NO_DRIVER,
    gpu_problem=NO_DRIVER,
    kernels={"simulated": RIGHT, "gpu": Kernel(message=f"not run: {NO_DRIVER}")},
)


def with_versions(facts, **changed):
    return replace(facts, versions={**facts.versions, **changed})


def station(cuda=(13, 0), toolkit=(13, 0), device=H200, gpu=RIGHT, **changed):
    """A machine with a GPU, whose driver runs CUDA up to `cuda` and whose compiler is of CUDA `toolkit`."""
    facts = replace(LAPTOP, driver=driver.Driver(True, cuda, "1.2", (device,), ""), toolkit=toolkit, gpu_problem="")
    return replace(facts, **{"mode": "gpu", "kernels": {"simulated": RIGHT, "gpu": gpu}} | changed)


NOT_USED = {"mode": "simulated", "gpu": Kernel(message="not run"), "gpu_problem": "a GPU is here, but no numba-cuda"}

# facts, the problem in them, whether it stops work, words of its text and fix
CASES = [
    (replace(LAPTOP, python=(3, 10)), "python version", True, ["3.10", "3.11, 3.12, 3.13", "PYTHON="]),
    (replace(LAPTOP, python=(3, 14)), "python version", True, ["3.14"]),
    (with_versions(LAPTOP, numba=None, tqdm=None), "packages missing", True, ["numba, tqdm", "make lab"]),
    (with_versions(LAPTOP, nbval=None), "packages missing", False, ["nbval", "make lab"]),
    (replace(with_versions(LAPTOP, numpy=None), colab=True), "packages missing", True, ["numpy", "%pip"]),
    (replace(LAPTOP, outside=("numpy 2.5.0 (needs <2.5)",)), "wrong versions", False, ["numpy 2.5.0", "pip install"]),
    (replace(LAPTOP, mode="", target_error="'gup' is not a mode"), "no mode", True, ["'gup'", "Unset DWLAB_TARGET"]),
    (replace(LAPTOP, decided_for="gpu"), "mode decided before", False, ["'' now", "'gpu'", "Restart"]),
    (replace(LAPTOP, requested="gpu", decided_for=""), "mode decided before", False, ["'gpu' now"]),
    (replace(LAPTOP, kernels={"simulated": FAILED}), "simulated kernel failed", True, ["[222]", ".venv"]),
    (replace(LAPTOP, driver=HIDDEN), "driver does not start", False, ["cuInit returned 100", "nvidia-smi"]),
    (replace(LAPTOP, colab=True), "colab without gpu", False, ["Change runtime type"]),
    (replace(LAPTOP, wsl=True), "wsl without gpu", False, ["driver in Windows", "wsl --update"]),
    (replace(LAPTOP, wsl=True, driver=HIDDEN), "wsl without gpu", False, ["cuInit returned 100"]),
    (station(toolkit=None, **NOT_USED), "gpu not used", False, ["no numba-cuda", "[gpu-cu13]"]),
    (station((12, 4), toolkit=None, **NOT_USED), "gpu not used", False, ["[gpu-cu12]"]),
    (station((12, 4), gpu=FAILED), "driver older than toolkit", True, ["CUDA up to 12.4", "13.0", "[gpu-cu12]"]),
    (station((12, 4), **NOT_USED), "driver older than toolkit", False, ["[gpu-cu12]"]),
    (station(toolkit=(13, 2), gpu=FAILED), "driver older than toolkit", True, ["cuda-toolkit==13.0.*"]),
    (station((11, 4), (12, 9), gpu=FAILED), "driver older than toolkit", True, ["525"]),
    (station(device=P100, gpu=FAILED), "gpu too old for toolkit", True, ["P100", "6.0", "7.5", "[gpu-cu12]"]),
    (station((12, 4), (12, 4), K80, FAILED), "gpu too old for toolkit", True, ["5.0", "DWLAB_TARGET=simulated"]),
    (station(gpu=FAILED), "gpu kernel failed", True, ["[222]", "DWLAB_TARGET=simulated"]),
    (station(gpu=FAILED, mode="simulated"), "gpu kernel failed", False, ["[222]"]),
]


@pytest.mark.parametrize("facts, name, stops, words", CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_problem_is_found_with_its_fix(facts, name, stops, words):
    (found,) = (one for one in doctor.problems(facts) if one.name != "colab without gpu" or one.name == name)
    assert (found.name, found.stops) == (name, stops)
    page = str(doctor.Examination(facts, (found,)))
    for word in words:
        assert word in f"{found.what} {found.fix}" and word in page
    assert page.endswith("Nothing here stops work.") is not stops and "{" not in page


@pytest.mark.parametrize(
    "facts",
    [
        *(LAPTOP, station(), replace(station(), colab=True), replace(station(), wsl=True)),
        replace(LAPTOP, requested="simulated", decided_for="simulated"),
        replace(with_versions(station(), jupyterlab=None), colab=True),  # Colab has an interface of its own
        station(toolkit=(13, 2)),  # newer within the generation, and the kernel ran
        station(toolkit=(12, 9), device=P100),
    ],
)
def test_nothing_is_said_where_nothing_is_wrong(facts):
    assert doctor.problems(facts) == ()
    assert str(doctor.Examination(facts, ())).endswith("No problem found.")


versions = st.tuples(st.integers(11, 14), st.integers(0, 9))


@given(versions, st.none() | versions, st.sampled_from([H200, P100, K80]), st.sampled_from(["gpu", "simulated"]))
def test_a_gpu_that_fails_has_one_reason_and_one_that_works_none(cuda, toolkit, device, mode):
    facts = station(cuda, toolkit, device, FAILED, mode=mode)
    (found,) = doctor.problems(facts)
    assert found.stops is (mode == "gpu")
    assert (found.name == "driver older than toolkit") is (toolkit is not None and toolkit > cuda)
    assert doctor.problems(station(cuda, toolkit, device, mode=mode)) == ()
    json.dumps(doctor.Examination(facts, (found,)).to_dict())


def test_records_that_are_damaged_are_named(tmp_path):
    for name in ("kernels.csv.xz", "nvidia-h100-80gb-hbm3.jsonl.xz", "predictions/20261123-h100.json.xz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        whole = (records.FOLDER / name).read_bytes()
        (tmp_path / name).write_bytes(whole)
        assert records.damaged(tmp_path) == []
        for at in range(len(whole) // 3, len(whole), len(whole) // 3 + 1):
            (tmp_path / name).write_bytes(whole[:at] + bytes([255 ^ whole[at]]) + whole[at + 1 :])
            (sentence,) = records.damaged(tmp_path)
            assert sentence.startswith(f"{Path(name).name} is damaged: ") and "git checkout" in sentence
        (tmp_path / name).write_bytes(whole)
    loose = [path.name for path in records.FOLDER.rglob("*") if path.suffix in (".json", ".jsonl", ".csv")]
    assert loose == [], "pack a run (`records --pack`, or `xz FILE`): only so it has a sum"
    (problem,) = doctor.problems(replace(LAPTOP, damaged=("kernels.csv is damaged: a byte.",)))
    assert problem.name == "damaged records" and not problem.stops and "kernels.csv" in problem.what
    (tmp_path / "kernels.csv").write_bytes(b"\xff")
    with pytest.raises(records.RecordError, match="kernels.csv is damaged"):
        digests.noted(tmp_path / "kernels.csv")


@pytest.mark.parametrize(
    "requirement, wrong",
    [
        ("pytest>=1", False),
        ("pytest<1", True),
        ('pytest[x]<1; sys_platform == "no" and extra == "y"', True),  # an extra's, if it is installed all the same
        ("no-such-distribution<1", False),
    ],
)
def test_versions_outside_the_requirements_are_named(requirement, wrong):
    assert list(doctor.outside([requirement])) == ([f"pytest {pytest.__version__} (needs <1)"] if wrong else [])


@pytest.fixture(scope="module")
def examined():
    return doctor.examine()


def test_this_machine_can_run_the_lessons(examined):
    assert examined.healthy, str(examined)
    assert examined.facts.kernels["simulated"] == RIGHT
    assert examined.facts.kernels["gpu"].ran is (examined.facts.gpu_problem == "")
    data = json.loads(json.dumps(examined.to_dict()))
    assert data["mode"] == target.mode and data["healthy"] is True
    assert data["python"] == "{}.{}".format(*sys.version_info)
    assert {"device", "driver", "toolkit", "versions", "system", "problems", "dwlab", "reason"} <= set(data)
    assert max(map(len, str(examined).splitlines())) <= 160


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("facts, status", [(LAPTOP, 0), (station(gpu=FAILED), 1)])
def test_the_exit_status_is_1_if_a_problem_stops_work(monkeypatch, capsys, as_json, facts, status):
    monkeypatch.setattr(doctor, "collect", lambda kernels: facts)
    assert doctor.main(argparse.Namespace(json=as_json)) == status
    assert ("gpu kernel failed" in capsys.readouterr().out) is bool(status)


@pytest.mark.parametrize(
    "code, message",
    [
        ("import os, sys; print('x', file=sys.stderr, flush=True); os._exit(7)", "the process ended with status 7: x"),
        ("pass", "the process ended with status 0: no message"),
        ("import time; time.sleep(60)", "no answer within 2 s"),
    ],
)
def test_a_probe_that_crashes_or_hangs_is_an_answer(monkeypatch, code, message):
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 2 if "sleep" in code else 60)
    assert doctor._ask("-c", code) == {"message": message}


def test_wrong_numbers_are_not_called_right(monkeypatch):
    from dwlab.simt import cuda

    assert doctor._probe("simulated") == {"right": True, "message": doctor.RIGHT}
    upload = cuda.to_device
    monkeypatch.setattr(cuda, "to_device", lambda array: upload(array + 1))
    assert doctor._probe("simulated") == {"right": False, "message": "ran, but its numbers are wrong"}
