"""The doctor: each detector on facts that have its problem and on facts that have not; this machine's examination."""

import argparse
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from dwlab import driver, target
from dwlab.setup import doctor
from dwlab.setup.doctor import Facts, Kernel, numpy_too_new

H200 = driver.Device("NVIDIA H200", (9, 0))
P100 = driver.Device("Tesla P100-PCIE-16GB", (6, 0))
K80 = driver.Device("Tesla K80", (3, 7))
DRIVER = driver.Driver(True, (13, 0), "580.159", (H200,), "")
HIDDEN = driver.Driver(True, (13, 0), "580.159", (), "the driver sees no GPU (cuInit returned 100)")
RIGHT = Kernel(True, True, "ran, and its numbers are right")
WRONG = Kernel(True, False, "CudaAPIError: [222] unsupported PTX version")

LAPTOP = Facts(
    versions={
        "numba": "0.68.1",
        "numpy": "2.4.6",
        "matplotlib": "3.11.2",
        "ipywidgets": "8.1.9",
        "jupyterlab": "4.6.6",
        "jupyterlab_widgets": "3.0.17",
        "pytest": "9.2.0",
        "nbval": "0.11.0",
        "numba-cuda": None,
    },
    reason="no NVIDIA driver is installed",
    gpu_problem="no NVIDIA driver is installed",
    kernels={"simulated": RIGHT, "gpu": Kernel(message="not run: no NVIDIA driver is installed")},
)


def with_versions(facts, **changed):
    return replace(facts, versions={**facts.versions, **{name.replace("__", "-"): v for name, v in changed.items()}})


STATION = replace(
    with_versions(LAPTOP, numba__cuda="0.30.4"),
    driver=DRIVER,
    toolkit=(13, 0),
    mode="gpu",
    reason="a usable GPU is here",
    gpu_problem="",
    kernels={"simulated": RIGHT, "gpu": RIGHT},
)
COLAB = replace(STATION, colab=True)
WSL = replace(STATION, wsl=2, wsl_driver=True)


def failing(facts, message=WRONG.message):
    return replace(facts, kernels={"simulated": RIGHT, "gpu": Kernel(True, False, message)})


def old_driver(facts, cuda, devices=(H200,)):
    return replace(facts, driver=driver.Driver(True, cuda, "470.1", devices, ""))


# facts that have it, the problem's name, whether it stops work, words of its text and fix
CASES = [
    (replace(LAPTOP, python=(3, 10)), "python version", True, ["3.10", "3.11 to 3.13", "PYTHON="]),
    (replace(LAPTOP, python=(3, 14)), "python version", True, ["3.14"]),
    (with_versions(LAPTOP, numba=None, ipywidgets=None), "packages missing", True, ["numba, ipywidgets", "make lab"]),
    (with_versions(LAPTOP, jupyterlab=None), "no JupyterLab", False, ["pytest --nbval", "make lab"]),
    (with_versions(LAPTOP, nbval=None), "test packages missing", False, ["nbval", "make test"]),
    (with_versions(failing(STATION), numpy="2.5.0"), "numpy too new", True, ["0.30.4", 'pip install "numpy<2.5"']),
    (with_versions(failing(COLAB), numpy="2.10.1"), "numpy too new", True, ['%pip install "numpy<2.5"']),
    (with_versions(LAPTOP, numba__cuda="0.30.4", numpy="2.5.1"), "numpy too new", False, ["2.5.1"]),
    (replace(LAPTOP, requested="gup", mode="", target_error="…"), "target not a mode", True, ["'gup'", "Unset"]),
    (replace(LAPTOP, requested="gpu", mode=""), "gpu asked for, none usable", True, ["no NVIDIA driver", "Unset"]),
    (replace(LAPTOP, requested=None, decided_for="simulated"), "mode decided before", False, ["Restart the kernel"]),
    (replace(LAPTOP, requested="gpu", gpu_problem="", decided_for=""), "mode decided before", False, ["'gpu' now"]),
    (replace(LAPTOP, cudasim_set=True, cudasim_active=False), "numba imported before", False, ["no effect", "Restart"]),
    (replace(LAPTOP, cudasim_set=False, cudasim_active=True), "numba imported before", False, ["still on"]),
    (replace(LAPTOP, cudasim_set=True, cudasim_active=True), "numba's simulator on", False, ["DWLAB_TARGET=simulated"]),
    (replace(STATION, cudasim_set=True, mode="simulated"), "numba's simulator on", False, ["hides the GPU"]),
    (replace(LAPTOP, numba_cuda_imported=True), "numba.cuda in simulated mode", False, ["from dwlab import cuda"]),
    (with_versions(STATION, numba__cuda=None), "numba-cuda missing", False, ["NVIDIA H200", "[gpu-cu13]"]),
    (old_driver(with_versions(STATION, numba__cuda=None), (12, 4)), "numba-cuda missing", False, ["[gpu-cu12]"]),
    (replace(STATION, toolkit=None, mode="simulated"), "compiler missing", False, ["nvrtc", "[gpu-cu13]"]),
    (replace(STATION, toolkit=None), "compiler missing", True, ["nvrtc"]),
    (old_driver(STATION, (12, 4)), "driver older than toolkit", True, ["CUDA up to 12.4", "13.0", "[gpu-cu12]"]),
    (failing(replace(STATION, toolkit=(13, 2))), "driver older than toolkit", True, ["cuda-toolkit==13.0.*"]),
    (old_driver(replace(STATION, toolkit=(12, 9)), (11, 4)), "driver older than toolkit", True, ["525"]),
    (old_driver(STATION, (13, 0), (P100,)), "gpu too old for toolkit", True, ["6.0", "7.5", "[gpu-cu12]"]),
    (old_driver(STATION, (13, 0), (K80,)), "gpu too old for toolkit", True, ["3.7", "DWLAB_TARGET=simulated"]),
    (replace(LAPTOP, driver=HIDDEN), "driver does not start", False, ["cuInit returned 100", "nvidia-smi"]),
    (replace(LAPTOP, colab=True), "colab without gpu", False, ["Change runtime type"]),
    (with_versions(COLAB, numba__cuda="0.19.1"), "colab's numba-cuda old", False, ["0.19.1", "[gpu-cu13]"]),
    (replace(LAPTOP, wsl=1), "wsl without gpu", False, ["--set-version"]),
    (replace(LAPTOP, wsl=2), "wsl without gpu", False, ["install its driver in Windows", "wsl --update"]),
    (replace(WSL, linux_driver=True), "wsl without gpu", False, ["Remove it"]),
    (replace(WSL, driver=HIDDEN), "wsl without gpu", False, ["cuInit returned 100", "--shutdown"]),
    (with_versions(LAPTOP, jupyterlab_widgets=None), "widgets extension", False, ["not installed", "needs version 3"]),
    (with_versions(LAPTOP, jupyterlab_widgets="1.1.7"), "widgets extension", False, ["1.1.7", "reload the page"]),
    (with_versions(LAPTOP, ipywidgets="7.8.1"), "widgets extension", False, ["ipywidgets 7.8.1 needs version 1"]),
    (replace(LAPTOP, kernels={"simulated": WRONG}), "simulated kernel failed", True, ["[222]", ".venv"]),
    (failing(STATION), "gpu kernel failed", True, ["[222]", "DWLAB_TARGET=simulated"]),
    (failing(replace(STATION, mode="simulated")), "gpu kernel failed", False, ["[222]"]),
]


@pytest.mark.parametrize("facts, name, stops, words", CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_problem_is_found_with_its_fix(facts, name, stops, words):
    found = {problem.name: problem for problem in doctor.problems(facts)}
    assert name in found
    text = f"{found[name].what} {found[name].fix}"
    for word in words:
        assert word in text
    assert found[name].stops is stops
    # Plain sentences, and nothing left over from a format string; a kernel's message stands as it came.
    assert re.fullmatch(r"[^{}]+\.", found[name].what) or found[name].what.endswith(WRONG.message)
    assert "{" not in found[name].fix
    assert doctor.Examination(facts, tuple(found.values())).healthy is not any(p.stops for p in found.values())


@pytest.mark.parametrize(
    "facts",
    [
        LAPTOP,
        STATION,
        COLAB,
        WSL,
        with_versions(COLAB, jupyterlab=None, jupyterlab_widgets=None),  # Colab has an interface of its own
        with_versions(LAPTOP, numpy="2.5.0"),  # without numba-cuda, NumPy may be as new as Numba allows
        replace(STATION, linux_driver=True),  # on plain Linux that is where it belongs
        replace(STATION, toolkit=(13, 2)),  # newer within the generation, and the kernel ran
        old_driver(replace(STATION, toolkit=(12, 9)), (13, 0), (P100,)),
        replace(LAPTOP, requested="simulated", decided_for="simulated"),
        replace(LAPTOP, requested=None, decided_for=""),
        replace(STATION, requested="GPU", decided_for="GPU", numba_cuda_imported=True),
        replace(LAPTOP, cudasim_active=False),
    ],
)
def test_nothing_is_said_where_nothing_is_wrong(facts):
    assert doctor.problems(facts) == ()


def test_every_detector_has_a_case():
    def silent(detector):
        return not any(detector(facts) for facts, *_ in CASES)

    assert [detector.__name__ for detector in doctor.DETECTORS if silent(detector)] == []
    assert len({problem.name for facts, *_ in CASES for problem in doctor.problems(facts)}) == len(doctor.DETECTORS)


def test_a_failed_kernel_is_not_named_twice():
    facts = failing(old_driver(STATION, (12, 4)))
    assert [problem.name for problem in doctor.problems(facts)] == ["driver older than toolkit"]


def test_what_stops_work_comes_first():
    facts = replace(with_versions(LAPTOP, nbval=None, jupyterlab_widgets=None), python=(3, 10))
    assert [problem.stops for problem in doctor.problems(facts)] == [True, False, False]


def test_the_page_names_what_stops_work_and_the_rest():
    text = str(doctor.Examination(STATION, ()))
    assert "mode              gpu: a usable GPU is here" in text
    for words in ("NVIDIA H200 (compute capability 9.0)", "580.159", "CUDA 13.0"):
        assert words in text
    assert text.endswith("No problem found.")
    facts = with_versions(LAPTOP, nbval=None)
    assert str(doctor.Examination(facts, doctor.problems(facts))).endswith("Nothing here stops work.")
    facts = failing(STATION)
    text = str(doctor.Examination(facts, doctor.problems(facts)))
    assert "STOPS WORK: gpu kernel failed" in text and "To mend it: See whether nvidia-smi" in text
    facts = replace(LAPTOP, requested="gup", mode="", target_error="'gup' is not a mode")
    assert "none: 'gup' is not a mode" in str(doctor.Examination(facts, doctor.problems(facts)))
    assert max(map(len, text.splitlines())) <= 160


@pytest.fixture(scope="module")
def examined():
    return doctor.examine()


def test_this_machine_can_run_the_lessons(examined):
    assert examined.healthy, str(examined)
    assert examined.facts.kernels["simulated"] == RIGHT
    assert examined.facts.kernels["gpu"].ran is (examined.facts.gpu_problem == "")
    assert examined.facts.mode == target.mode
    assert examined.facts.python == sys.version_info[:2]


def test_json_holds_all_of_it(examined):
    data = json.loads(json.dumps(examined.to_dict()))
    assert data["mode"] == target.mode and data["healthy"] is True
    assert data["kernels"]["simulated"] == {"ran": True, "right": True, "message": RIGHT.message}
    assert set(data["versions"]) == {*doctor.NEEDED, *doctor.TESTING, *doctor.OTHERS}
    assert {"device", "driver", "toolkit", "python", "system", "problems", "dwlab", "reason"} <= set(data)
    data = doctor.Examination(STATION, doctor.problems(failing(STATION))).to_dict()
    assert data["device"] == {"name": "NVIDIA H200", "compute_capability": (9, 0)} and data["toolkit"] == "13.0"
    assert data["problems"][0]["stops"] is True and data["healthy"] is False


@pytest.mark.parametrize("as_json", [False, True])
def test_the_exit_status_is_1_if_a_problem_stops_work(monkeypatch, capsys, as_json):
    options = argparse.Namespace(json=as_json)
    monkeypatch.setattr(doctor, "collect", lambda kernels: LAPTOP)
    assert doctor.main(options) == 0
    monkeypatch.setattr(doctor, "collect", lambda kernels: failing(STATION))
    assert doctor.main(options) == 1
    assert "gpu kernel failed" in capsys.readouterr().out


def probed(code, monkeypatch, seconds=60):
    monkeypatch.setattr(doctor, "PROBE_SECONDS", seconds)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return doctor._answer(process)


def test_a_probe_that_crashes_is_an_answer(monkeypatch):
    answer = probed("import os, sys; print('x', file=sys.stderr); sys.stderr.flush(); os._exit(7)", monkeypatch)
    assert answer == {"message": "the process ended with status 7: x"}


def test_a_probe_that_says_nothing_is_an_answer(monkeypatch):
    assert probed("pass", monkeypatch)["message"] == "the process ended with status 0: it said nothing"


def test_a_probe_that_hangs_is_ended(monkeypatch):
    assert probed("import time; time.sleep(60)", monkeypatch, seconds=0.2) == {"message": "no answer within 0.2 s"}


def test_wrong_numbers_are_not_called_right(monkeypatch):
    from dwlab.simt import cuda

    assert doctor._small_kernel(cuda)["right"] is True
    upload = cuda.to_device
    monkeypatch.setattr(cuda, "to_device", lambda array: upload(array + 1))
    answer = doctor._small_kernel(cuda)
    assert answer["right"] is False and "wrong" in answer["message"]


def test_a_probe_reports_what_a_broken_installation_raises(monkeypatch):
    def fail(cuda):
        raise OSError("libnvrtc.so.13: no such file\nand more")

    monkeypatch.setattr(doctor, "_small_kernel", fail)
    assert doctor._probe("simulated")["message"] == "OSError: libnvrtc.so.13: no such file"


def test_the_python_versions_are_those_of_pyproject():
    from pathlib import Path

    text = Path(doctor.__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8")
    first, last = doctor.PYTHONS
    assert f'requires-python = ">={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"' in text
    assert f'"numpy>=2.0,<{doctor.NUMPY_LIMIT[0]}.{doctor.NUMPY_LIMIT[1]}"' in text


def test_a_gpu_kernel_that_ran_overrules_the_versions():
    assert numpy_too_new(with_versions(STATION, numpy="2.5.0")) is None
    assert numpy_too_new(with_versions(failing(STATION), numpy="2.5.0")).stops
