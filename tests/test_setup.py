"""The set-up: what the files promise each other, and what `make lab` and `make test` do and say on many machines."""

import ast
import contextlib
import errno
import graphlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from dwlab import driver, lab

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DISASSEMBLER = "nvidia-cuda-nvdisasm"
# conda's name for a package where it is not PyPI's.
CONDA = {"matplotlib": "matplotlib-base"}


def split(requirement):
    """("numpy", ">=2.0,<2.5") of a requirement with or without extras and markers."""
    name, bounds = re.match(r"([\w.-]+)(?:\[[\w,]+\])?([^;]*)", requirement).groups()
    return name.lower(), bounds.replace(" ", "")


# --- files that must agree --------------------------------------------------------------------------------------------


def test_conda_users_get_the_same_packages():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    theirs = dict(split(one) for one in conda["dependencies"] if isinstance(one, str))
    ours = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"]
    wanted = {CONDA.get(name, name): bounds for name, bounds in map(split, ours)}
    assert theirs.pop("pip") == ""
    assert theirs.pop("python") == PROJECT["project"]["requires-python"].replace(" ", "")
    assert theirs == wanted
    assert [one["pip"] for one in conda["dependencies"] if isinstance(one, dict)] == [["-e ."]]


def test_conda_users_are_told_the_same_numba_cuda():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    bounds = {split(extra[0])[1] for name, extra in extras().items() if name.startswith("gpu-")}
    assert len(bounds) == 1 and f'"numba-cuda{bounds.pop()}"' in text
    assert "cuda-nvdisasm" in text


def extras():
    return PROJECT["project"]["optional-dependencies"]


def test_the_base_installs_where_numba_cuda_has_no_wheels():
    assert not [one for one in PROJECT["project"]["dependencies"] if "cuda" in one]
    for generation in (12, 13):
        compiler, disassembler = extras()[f"gpu-cu{generation}"]
        assert compiler.startswith(f"numba-cuda[cu{generation}]")
        assert disassembler.startswith(f"{DISASSEMBLER}>=13,<14;")
        for requirement in (compiler, disassembler):
            assert requirement.endswith("; sys_platform == 'linux' or sys_platform == 'win32'")


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [line.split("==") for line in lines if not line.startswith("#")]
    assert all(len(pair) == 2 for pair in found)
    assert len(dict(found)) == len(found)
    return {name.lower(): version for name, version in found}


def test_every_dependency_is_pinned_within_its_bounds():
    from packaging.specifiers import SpecifierSet

    pinned = pins()
    for requirement in PROJECT["project"]["dependencies"] + extras()["dev"] + extras()["gpu-cu13"]:
        name, bounds = split(requirement)
        if name == DISASSEMBLER and name not in pinned:
            continue  # from the next `make pin` on
        assert SpecifierSet(bounds).contains(pinned[name]), f"{name} {pinned[name]} is not {bounds}: run make pin"


def test_nothing_is_pinned_that_follows_the_driver():
    # The two extras ask for different versions of these: a pin would make one of them impossible.
    follow = {name for name in pins() if name.startswith("nvidia-") or name in ("cuda-toolkit", "cuda-bindings")}
    assert follow <= {DISASSEMBLER}  # the same in both


def test_every_dependency_says_why():
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    inside, bare = False, []
    for before, line in zip(lines, lines[1:], strict=False):
        inside = line.startswith(("dependencies = [", "dev = [")) or (inside and line != "]")
        if inside and line.startswith('    "') and not before.strip().startswith("#"):
            bare.append(line)
    assert bare == []


def test_the_package_carries_its_records_and_data():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["dwlab"]
    carried = {path for pattern in patterns for path in (ROOT / "dwlab").glob(pattern)}
    files = {path for folder in ("records", "data") for path in (ROOT / "dwlab" / folder).rglob("*") if path.is_file()}
    data = {path for path in files if path.suffix not in (".py", ".pyc")}
    assert data and data <= carried


def test_the_version_is_written_once():
    import dwlab

    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "dwlab.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", dwlab.__version__)


def test_ci_runs_what_a_person_runs():
    script = ROOT / ".ci" / "run"
    assert script.read_text(encoding="utf-8").rstrip().endswith("exec make test")
    assert os.access(script, os.X_OK)


def test_the_pythons_are_the_same_everywhere():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "|".join(lab.PYTHONS) in makefile
    first, last = lab.PYTHONS[0], lab.PYTHONS[-1]
    after = f"{last.split('.')[0]}.{int(last.split('.')[1]) + 1}"
    assert PROJECT["project"]["requires-python"] == f">={first},<{after}"
    cpu = yaml.safe_load((ROOT / ".github/workflows/cpu.yml").read_text(encoding="utf-8"))
    assert cpu["jobs"]["test"]["strategy"]["matrix"]["python"] == list(lab.PYTHONS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_valid_and_runs_commands_that_exist(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["name"] and workflow[True]  # YAML reads the key `on` as true
    runs = "\n".join(step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"])
    from dwlab.__main__ import parse

    commands = re.findall(r"-m dwlab (\w.*)", runs)
    for command in commands:
        parse(command.split(" > ")[0].split())
    assert commands or "make test" in runs


def test_the_gpu_workflow_times_the_cells_and_names_the_gpu():
    text = (ROOT / ".github/workflows/gpu.yml").read_text(encoding="utf-8")
    for words in ("--nbval notebooks/ --durations=0", "dwlab study", "dwlab doctor", "nvidia-smi", "DWLAB_TARGET: gpu"):
        assert words in text


# --- the README -------------------------------------------------------------------------------------------------------


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readmes_tables_are_those_of_the_records():
    from dwlab import report

    assert report.fill(README) == README, "run: python benchmarks/fill_tables.py README.md"


def test_the_readmes_kernel_is_xrayed_as_it_says(capsys, monkeypatch, tmp_path):
    code = re.search(r"```python\n(.*?)```", README, re.S)[1]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    # 128 warps: each reads a column of 32 rows, one sector a lane, and writes 32 neighbouring elements, four sectors.
    assert mine.report.array("a", "load").sectors == 128 * 32
    assert mine.report.array("b", "store").sectors == 128 * 4
    assert "b[j, i] = a[i, j]" in capsys.readouterr().out


def test_the_readmes_map_names_every_room():
    rows = re.search(r"## The map\n\n```\n(.*?)```", README, re.S)[1].splitlines()
    top = [row.split()[0] for row in rows if not row.startswith(" ")]
    assert all((ROOT / name).exists() for name in top)
    named = {word.strip(";,:") for row in rows if row.startswith("  ") for word in row.split()}
    named = {word for word in named if word.endswith((".py", "/"))}
    assert all((ROOT / "dwlab" / name).exists() for name in named)
    ignored = {"__pycache__"}
    rooms = {p.name + "/" * p.is_dir() for p in (ROOT / "dwlab").iterdir() if p.name not in ignored}
    assert rooms - named == set()


def imported_rooms():
    """dwlab's files, as "inference.int8", and what each imports of them, at its top or when a function is called."""
    files = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in (ROOT / "dwlab").rglob("*.py")}
    files = {name.replace("/", ".").removesuffix(".__init__"): path for name, path in files.items()}
    for room, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
        skipped = {inside for node in types for inside in ast.walk(node)}
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node not in skipped]
        names = [(node.module, one.name) for node in imports for one in node.names if node.module.startswith("dwlab")]
        found = {f"{module}.{name}" if f"{module}.{name}" in files else module for module, name in names}
        yield room.partition(".")[2], {name.partition(".")[2] for name in found}


def one_way(imports):
    """Raises CycleError, which names the rooms in a circle."""
    graph: dict[str, set[str]] = {}
    for room, found in imports:
        graph.setdefault(room, set()).update(found - {room})
    return tuple(graphlib.TopologicalSorter(graph).static_order())


def test_rooms_import_each_other_one_way():
    """What a room imports never comes back to it, but for types alone: folders as one room, and the files in each."""
    imports = dict(imported_rooms())
    assert {"planner", "inference.int8", "inference.with_torch"} <= imports["inference"]
    one_way((room.split(".")[0], {one.split(".")[0] for one in found}) for room, found in imports.items())
    order = one_way((room, found) for room, found in imports.items() if not room.startswith("simt"))
    assert order.index("inference.weights") < order.index("inference") < order.index("inference.comparison")


def test_the_readme_lists_every_lesson():
    listed = set(re.findall(r"^\| `(\d\d_\w+)` \|", README, re.M))
    assert {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")} == listed


def test_the_readmes_commands_are_understood():
    from dwlab.__main__ import parse

    commands = re.findall(r"python -m dwlab (?!\.)([^`\n>]+)", README)
    assert len(commands) >= 6
    for command in commands:
        parse(command.split())
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)[1].split()
    assert set(re.findall(r"\bmake (lab|test|install|pin|\w+(?=`))", README)) <= set(targets)


# --- which extras, which environment ----------------------------------------------------------------------------------


def test_the_gpu_extra_follows_the_driver():
    h200 = (driver.Device("NVIDIA H200", (9, 0)),)
    assert lab.gpu_extra(driver.Driver()) == frozenset()
    assert lab.gpu_extra(driver.Driver(True, (13, 0), None, h200, "")) == {"gpu-cu13"}
    assert lab.gpu_extra(driver.Driver(True, (12, 2), None, h200, "")) == {"gpu-cu12"}
    assert {"gpu-cu12", "gpu-cu13"} <= set(extras())


def test_the_compiler_is_never_newer_than_the_driver():
    h200, p100 = (driver.Device("NVIDIA H200", (9, 0)),), (driver.Device("Tesla P100", (6, 0)),)
    assert lab.compiler_bound(driver.Driver()) == ()
    assert lab.compiler_bound(driver.Driver(True, (13, 0), None, h200, "")) == ("cuda-toolkit<13.1",)
    assert lab.compiler_bound(driver.Driver(True, (12, 9), None, h200, "")) == ("cuda-toolkit<12.10",)
    assert lab.compiler_bound(driver.Driver(True, (13, 0), None, p100, "")) == ()
    assert lab.compiler_bound(driver.Driver(True, (11, 8), None, h200, "")) == ()


def test_extras_add_up_but_for_the_compiler_of_another_generation():
    assert lab.wanted_extras(frozenset({"dev"}), frozenset()) == {"dev"}
    assert lab.wanted_extras(frozenset({"dev", "gpu-cu12"}), frozenset({"gpu-cu13"})) == {"dev", "gpu-cu13"}
    assert lab.wanted_extras(frozenset({"gpu-cu12"}), frozenset({"dev"})) == {"dev", "gpu-cu12"}


def test_what_was_installed_is_remembered(tmp_path):
    assert lab.read_state(tmp_path) is None
    state = lab.State("digest", frozenset({"dev", "gpu-cu13"}))
    lab.write_state(tmp_path, state)
    assert lab.read_state(tmp_path) == state
    for text in ("", "[]", '{"inputs": "x"}', '{"inputs": "x", "extras": 3}'):
        (tmp_path / "dwlab-installed.json").write_text(text, encoding="utf-8")
        assert lab.read_state(tmp_path) is None


def test_the_inputs_are_the_two_files_the_place_and_the_python(tmp_path):
    (tmp_path / "pyproject.toml").write_text("a", encoding="utf-8")
    seen = {lab.inputs_of(tmp_path, "3.11"), lab.inputs_of(tmp_path, "3.12")}
    (tmp_path / "constraints.txt").write_text("b", encoding="utf-8")
    seen.add(lab.inputs_of(tmp_path, "3.11"))
    (tmp_path / "pyproject.toml").write_text("ab", encoding="utf-8")
    (tmp_path / "constraints.txt").write_text("", encoding="utf-8")
    seen.add(lab.inputs_of(tmp_path, "3.11"))
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(tmp_path / name, moved)
    seen.add(lab.inputs_of(moved, "3.11"))
    assert len(seen) == 5


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of its own, where making and installing are recorded and do nothing else."""
    root = tmp_path / "check out"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]", encoding="utf-8")
    calls = []
    monkeypatch.setattr(lab, "ROOT", root)

    def make(folder):
        calls.append("make")
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "pyvenv.cfg").write_text("", encoding="utf-8")
        lab.python_in(folder).unlink(missing_ok=True)
        lab.python_in(folder).symlink_to(sys.executable)

    monkeypatch.setattr(lab, "_make_venv", make)
    monkeypatch.setattr(lab, "_install", lambda python, extras, bounds: calls.append(",".join(sorted(extras))))
    monkeypatch.setattr(lab, "version_of", lambda python: lab.THIS_PYTHON if python.exists() else None)
    return root, calls


def ensure(root, *needed, exact=False, modules=("json",)):
    return lab.ensure(root / ".venv", frozenset(needed), exact, modules)


def test_installs_once_and_again_only_when_something_changed(checkout):
    root, calls = checkout
    python = ensure(root)
    assert python == root / ".venv" / "bin" / "python" and calls == ["make", ""]
    ensure(root)
    assert calls == ["make", ""]
    ensure(root, "dev")
    assert calls[2:] == ["dev"]
    ensure(root, "dev")
    ensure(root)  # what is there for the tests stays for the lab
    assert calls[3:] == []
    (root / "pyproject.toml").write_text("[project] # changed", encoding="utf-8")
    ensure(root)
    assert calls[3:] == ["dev"]
    settings = json.loads((root / ".venv/share/jupyter/lab/settings/overrides.json").read_text(encoding="utf-8"))
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"


def test_an_install_that_broke_off_is_done_again(checkout, monkeypatch):
    root, calls = checkout

    def interrupted(python, extras, bounds):
        raise KeyboardInterrupt

    monkeypatch.setattr(lab, "_install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ensure(root)
    monkeypatch.setattr(lab, "_install", lambda python, extras, bounds: calls.append("installed"))
    ensure(root)
    assert calls == ["make", "installed"]


def test_an_environment_whose_python_is_gone_is_made_anew(checkout):
    root, calls = checkout
    lab.python_in(ensure(root).parent.parent).unlink()
    ensure(root)
    assert calls == ["make", "", "make", ""]


def test_a_named_python_of_another_version_makes_it_anew(checkout, monkeypatch):
    root, calls = checkout
    ensure(root)
    monkeypatch.setattr(lab, "version_of", lambda python: "3.99")
    ensure(root, exact=False)
    assert calls == ["make", "", ""]  # kept; installed again, since it is another Python than before
    ensure(root, exact=True)
    assert calls[3:] == ["make", ""]


def test_without_a_network_an_environment_that_works_is_used_as_it_is(checkout, monkeypatch, capsys):
    root, calls = checkout
    ensure(root)
    (root / "pyproject.toml").write_text("[project] # changed", encoding="utf-8")

    def offline(python, extras, bounds):
        raise lab.Stop("The package index cannot be reached")

    monkeypatch.setattr(lab, "_install", offline)
    assert ensure(root, modules=("json",)).exists()
    assert "Going on with what" in capsys.readouterr().err
    with pytest.raises(lab.Stop, match="cannot be reached"):
        ensure(root, modules=("no_such_module_anywhere",))
    monkeypatch.setattr(lab, "_install", lambda python, extras, bounds: calls.append("later"))
    ensure(root)
    assert calls[-1] == "later"  # with the network back, the update is made


def test_a_gpu_compiler_without_a_build_does_not_stop_the_lab(checkout, monkeypatch, capsys):
    root, calls = checkout

    def install(python, extras, bounds):
        calls.append(",".join(sorted(extras)) + "".join(bounds))
        if "gpu-cu13" in extras:
            raise lab.Stop("Installing failed. " + lab.explain_pip("ERROR: No matching distribution found for x", {}))

    monkeypatch.setattr(lab, "_install", install)
    needed = frozenset({"dev", "gpu-cu13"})
    lab.ensure(root / ".venv", needed, False, ("json",), ("cuda-toolkit<13.1",))
    assert calls == ["make", "dev,gpu-cu13cuda-toolkit<13.1", "dev,gpu-cu13", "dev"]
    assert "going on without it" in capsys.readouterr().err
    assert lab.read_state(root / ".venv").extras == {"dev"}  # so the next make tries again


def test_the_network_failing_is_not_taken_for_a_missing_build(checkout, monkeypatch):
    root, calls = checkout

    def install(python, extras, bounds):
        calls.append("tried")
        raise lab.Stop("Installing failed. " + lab.explain_pip(REFUSED, {}))

    monkeypatch.setattr(lab, "_install", install)
    with pytest.raises(lab.Stop, match="cannot be reached"):
        ensure(root, "gpu-cu13", modules=("no_such_module_anywhere",))
    assert calls == ["make", "tried"]


def test_two_makes_at_once_install_once(checkout, monkeypatch):
    root, calls = checkout
    real = lab._one_at_a_time

    @contextlib.contextmanager
    def slow_lock(place):
        with real(place):
            if not calls:  # while this one waited, the other did all the work
                monkeypatch.setattr(lab, "_one_at_a_time", real)
                calls.append("other")
                ensure(root, "dev")
            yield

    monkeypatch.setattr(lab, "_one_at_a_time", slow_lock)
    monkeypatch.setattr("fcntl.flock", lambda file, how: None)
    ensure(root, "dev")
    assert calls == ["other", "make", "dev"]


def test_settings_that_lead_elsewhere_are_dropped(monkeypatch):
    given = {
        "PYTHONPATH": "/opt/ros",
        "PYTHONHOME": "/x",
        "PIP_TARGET": "/y",
        "PIP_USER": "1",
        "PIP_INDEX_URL": "https://z",
    }
    monkeypatch.setattr(lab.os, "environ", dict(given))
    lab._forget_other_places()
    assert lab.os.environ == {"PIP_USER": "0", "PIP_INDEX_URL": "https://z"}


def test_a_read_only_checkout_says_what_to_do(checkout, monkeypatch):
    root, calls = checkout
    monkeypatch.setattr(lab.os, "access", lambda path, how: Path(path) != root)
    with pytest.raises(lab.Stop, match=r"Cannot write in .*\n.*\n  cp -r '.*check out' ~/dwlab && cd ~/dwlab"):
        ensure(root)
    assert calls == []


def test_a_venv_folder_that_cannot_be_written_asks_for_another(checkout, monkeypatch):
    root, _ = checkout

    def denied(folder):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(lab, "_make_venv", denied)
    with pytest.raises(lab.Stop, match="Permission denied. Choose another folder: VENV="):
        ensure(root)


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(lab.Stop, match="is no virtual environment: move it away"):
        lab._make_venv(tmp_path)
    assert (tmp_path / "thesis.tex").read_text(encoding="utf-8") == "years of work"


def test_debians_python_without_venv_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ensurepip", None)  # makes the import fail
    with pytest.raises(lab.Stop, match=rf"sudo apt install python{lab.THIS_PYTHON}-venv"):
        lab._make_venv(tmp_path / "venv")
    assert not (tmp_path / "venv").exists()


# --- what pip says ----------------------------------------------------------------------------------------------------

REFUSED = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('Failed to establish a new "
    "connection: [Errno 101] Network is unreachable'): /simple/numba/\n"
    "ERROR: No matching distribution found for numba>=0.61"
)
PROXY = "WARNING: Retrying after connection broken by 'ProxyError('Cannot connect to proxy.', NewConnectionError(…))'"


@pytest.mark.parametrize(
    "output, variables, words",
    [
        (REFUSED, {}, ["cannot be reached", "HTTPS_PROXY=", "PIP_FIND_LINKS="]),
        (
            PROXY,
            {"https_proxy": "http://proxy:3128"},
            ["proxy did not let pip through", "https_proxy=http://proxy:3128"],
        ),
        (PROXY, {}, ["pip config list"]),
        ("[SSL: CERTIFICATE_VERIFY_FAILED]", {}, ["PIP_CERT="]),
        ("OSError: [Errno 28] No space left on device", {}, ["disk is full", "VENV="]),
        ("ERROR: Could not find a version that satisfies the requirement llvmlite", {}, [lab.THIS_PYTHON, "no build"]),
        ("ERROR: [Errno 13] Permission denied: 'x'", {}, ["VENV="]),
        ("something new", {}, ["message above"]),
    ],
)
def test_pip_failures_are_explained(output, variables, words):
    text = lab.explain_pip(output, variables)
    for word in words:
        assert word in text


def test_a_proxys_password_is_not_printed():
    text = lab.explain_pip(PROXY, {"HTTPS_PROXY": "http://ada:secret@proxy:3128/"})
    assert "secret" not in text and "ada" not in text and "proxy:3128" in text


# --- starting JupyterLab ----------------------------------------------------------------------------------------------


def arguments(platform="linux", variables=None, superuser=False, wsl=False, snap=False):
    return lab.jupyter_arguments(
        platform, variables or {}, root=Path("/course/dw lab"), superuser=superuser, wsl=wsl, snap=snap
    )


def test_the_lab_opens_on_the_first_lesson():
    assert arguments(variables={"DISPLAY": ":0"}) == [
        f"--ServerApp.root_dir={Path('/course/dw lab')}",
        "--LabApp.default_url=/lab/workspaces/dwlab/tree/notebooks/00_start_here.ipynb",
        "--ServerApp.contents_manager_class=dwlab.contents.Lessons",
    ]


@pytest.mark.parametrize(
    "platform, variables, wsl, browser",
    [
        ("linux", {}, False, False),
        ("linux", {"DISPLAY": ":0"}, False, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, False, True),
        ("linux", {"BROWSER": "w3m"}, False, True),
        ("linux", {}, True, True),
        ("darwin", {}, False, True),
        ("darwin", {"SSH_CONNECTION": "a b c d"}, False, False),
        ("win32", {}, False, True),
    ],
)
def test_a_browser_is_opened_only_where_there_is_a_screen(platform, variables, wsl, browser):
    assert ("--no-browser" not in arguments(platform, variables, wsl=wsl)) is browser


def test_root_and_strange_browsers_are_provided_for():
    assert "--allow-root" in arguments(superuser=True) and "--allow-root" not in arguments()
    redirect = "--ServerApp.use_redirect_file=False"
    assert redirect in arguments(wsl=True) and redirect in arguments(variables={"DISPLAY": ":0"}, snap=True)
    assert redirect not in arguments(variables={"DISPLAY": ":0"}) and redirect not in arguments(snap=True)


def test_arguments_are_handed_on():
    assert arguments(variables={"ARGS": "--port 9000 --ip '0.0.0.0'"})[-4:] == ["--port", "9000", "--ip", "0.0.0.0"]


def test_a_home_that_cannot_be_written_is_replaced(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(lab.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(lab, "_can_write", lambda folder: False)
    moved = lab._private_folders(Path(sys.executable))
    assert {"JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "MPLCONFIGDIR"} <= set(moved)
    assert all(Path(folder).is_dir() and tmp_path in Path(folder).parents for folder in moved.values())
    assert str(tmp_path) in capsys.readouterr().err
    monkeypatch.setattr(lab, "_can_write", lambda folder: True)
    assert lab._private_folders(Path(sys.executable)) == {}


def test_a_folder_can_be_written_if_its_nearest_that_exists_can(tmp_path):
    assert lab._can_write(tmp_path / "a" / "b")
    assert not lab._can_write(Path("/proc/1/a/b")) or sys.platform != "linux"


def test_a_missing_first_lesson_is_said(checkout):
    with pytest.raises(lab.Stop, match="00_start_here.ipynb is missing"):
        lab.lab(Path(sys.executable))


# --- make test --------------------------------------------------------------------------------------------------------


def test_every_step_runs_and_one_failure_fails(monkeypatch, capfd):
    steps = (lab.Step("broken", ("no_such_module_anywhere",)), lab.Step("sound", ("json.tool", "--help")))
    monkeypatch.setattr(lab, "_doctor", lambda python, variables: None)
    assert lab.test(Path(sys.executable), steps) == 1
    out = capfd.readouterr().out
    assert re.search(r"^FAILED +[\d.]+ s  broken$", out, re.M) and re.search(r"^ok +[\d.]+ s  sound$", out, re.M)
    assert lab.test(Path(sys.executable), steps[1:]) == 0


def test_make_test_runs_lint_tests_lessons_and_exercises():
    commands = [" ".join(step.arguments) for step in lab.STEPS]
    for part in ("ruff check .", "pytest", "--nbval", "notebooks/", "dwlab grade --solutions"):
        assert any(part in command for command in commands)


def test_pins_are_what_both_resolves_agree_on():
    def report(**packages):
        return {"install": [{"metadata": {"name": n, "version": v}} for n, v in packages.items()]}

    one = report(numpy="2.4.6", Cuda="12.9", alpha="1", only="1")
    two = report(alpha="1", numpy="2.4.6", Cuda="13.0")
    assert list(lab.agreed([one, two]).items()) == [("alpha", "1"), ("numpy", "2.4.6")]


# --- the Makefile's choice of a Python --------------------------------------------------------------------------------


@pytest.fixture
def pythons(tmp_path):
    """Runs `make lab` in a copy of the Makefile with only the given pythons: name -> (version, has ensurepip)."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed here")
    shutil.copy(ROOT / "Makefile", tmp_path)
    binaries = tmp_path / "bin"
    binaries.mkdir()

    def run(given, *arguments):
        for name, (version, complete) in given.items():
            script = binaries / name
            script.write_text(
                "#!/bin/sh\n"
                f'case "$2" in *version_info*) echo {version}; exit ;; *ensurepip*) exit {int(not complete)} ;; esac\n'
                f'echo "{name} runs: $*"\n',
                encoding="utf-8",
            )
            script.chmod(0o755)
        command = [shutil.which("make"), "-C", str(tmp_path), "--no-print-directory", "lab", *arguments]
        return subprocess.run(command, env={"PATH": str(binaries)}, capture_output=True, text=True, timeout=600)

    return run


@pytest.mark.parametrize(
    "given, chosen",
    [
        ({"python3": ("3.12", True)}, "python3"),
        ({"python3": ("3.9", True), "python3.11": ("3.11", True)}, "python3.11"),
        ({"python3": ("3.14", True), "python3.12": ("3.12", True), "python3.13": ("3.13", True)}, "python3.13"),
        ({"python3": ("3.11", False), "python3.13": ("3.13", True)}, "python3.13"),
        ({"python3": ("3.11", False)}, "python3"),  # which then says what it lacks
        ({"python": ("3.12", True)}, "python"),
    ],
)
def test_make_finds_a_python(pythons, given, chosen):
    done = pythons(given)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{chosen} runs: -m dwlab.lab lab --venv="


def test_make_without_a_fitting_python_says_what_it_found(pythons):
    done = pythons({"python3": ("3.9", True), "python": ("2.7", True)})
    assert done.returncode == 2
    assert "dwlab needs Python 3.11, 3.12 or 3.13. python3 is 3.9; python is 2.7;" in done.stderr
    assert "sudo apt install python3.12 python3.12-venv" in done.stderr and "make lab PYTHON=" in done.stderr


def test_make_without_any_python_says_so(pythons):
    done = pythons({})
    assert done.returncode == 2 and "No Python was found." in done.stderr


def test_a_named_python_is_taken_or_refused_never_replaced(pythons):
    given = {"python3": ("3.12", True), "mine": ("3.13", True), "old": ("3.8", True)}
    done = pythons(given, "PYTHON=mine", "VENV=/tmp/a b")
    assert done.stdout.strip() == "mine runs: -m dwlab.lab lab --venv=/tmp/a b --exact"
    done = pythons(given, "PYTHON=old")
    assert done.returncode == 2 and "old is 3.8" in done.stderr
