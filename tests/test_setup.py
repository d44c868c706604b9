"""The set-up: what the files promise each other, and what `make lab` and `make test` do and say on many machines."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import lab
import pytest
import yaml

from dwlab._version import __version__
from dwlab.gpu import driver
from dwlab.widgets import workbook

pytestmark = pytest.mark.quick

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
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    conda = yaml.safe_load(text)
    theirs = dict(split(one) for one in conda["dependencies"] if isinstance(one, str))
    ours = PROJECT["project"]["dependencies"] + extras()["lab"] + extras()["dev"]
    wanted = {CONDA.get(name, name): bounds for name, bounds in map(split, ours)}
    assert theirs.pop("pip") == ""
    assert theirs.pop("python") == PROJECT["project"]["requires-python"].replace(" ", "")
    assert theirs == wanted
    bounds = {split(extra[0])[1] for name, extra in extras().items() if name.startswith("gpu-")}
    assert len(bounds) == 1 and f'"numba-cuda{bounds.pop()}"' in text and "cuda-nvdisasm" in text
    assert [one["pip"] for one in conda["dependencies"] if isinstance(one, dict)] == [["-e ."]]


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


def test_every_dependency_is_pinned_within_its_bounds_and_nothing_that_follows_the_driver():
    from packaging.specifiers import SpecifierSet

    pinned = pins()
    for requirement in PROJECT["project"]["dependencies"] + extras()["lab"] + extras()["dev"] + extras()["gpu-cu13"]:
        name, bounds = split(requirement)
        if name == DISASSEMBLER and name not in pinned:
            continue  # from the next `make pin` on
        assert SpecifierSet(bounds).contains(pinned[name]), f"{name} {pinned[name]} is not {bounds}: run make pin"
    # The two extras ask for different versions of these: a pin would make one of them impossible.
    follow = {name for name in pins() if name.startswith("nvidia-") or name in ("cuda-toolkit", "cuda-bindings")}
    assert follow <= {DISASSEMBLER}  # the same in both


def test_the_package_carries_its_records_data_and_the_text_of_each_licence():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["dwlab"]
    carried = {path for pattern in patterns for path in (ROOT / "dwlab").glob(pattern)}
    files = {path for folder in ("records", "data") for path in (ROOT / "dwlab" / folder).rglob("*") if path.is_file()}
    data = {path for path in files if path.suffix not in (".py", ".pyc")}
    assert data and data <= carried
    files = [one.as_posix() for pattern in PROJECT["project"]["license-files"] for one in ROOT.glob(pattern)]
    readme = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")[-1]
    for name in PROJECT["project"]["license"].split(" AND "):
        assert any(one.endswith("/LICENSE") if name == "MIT" else name in one for one in files), name
        assert name in readme, name


def test_the_version_is_written_once_and_has_a_heading_in_the_changelog():
    assert f"\n## {__version__} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "dwlab._version.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_ci_runs_what_a_person_runs_on_the_same_pythons():
    script = ROOT / ".ci" / "run"
    assert script.read_text(encoding="utf-8").rstrip().endswith("exec make test")
    assert os.access(script, os.X_OK)
    assert "|".join(lab.PYTHONS) in (ROOT / "Makefile").read_text(encoding="utf-8")
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
    assert any("make test" in step.get("run", "") for step in next(iter(workflow["jobs"].values()))["steps"])
    used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", one) for one in used), "pinned by commit"


# --- which environment ------------------------------------------------------------------------------------------------

ANOTHER = next(one for one in lab.PYTHONS if one != lab.THIS_PYTHON)  # Python
WHOLE = "pip .[dev,gpu-cu13,lab]"
H200 = driver.Driver(True, (13, 0), None, (driver.Device("H200", (9, 0)),), "")
PYTHON = """#!/bin/sh
case "$*" in
  *"-m pip"*)
    echo "pip $*" >> "{log}"
    while [ -e "{log}.wait" ]; do sleep 0.05; done
    for word in $(cat "{log}.fails" 2>/dev/null); do
      case "$*" in *"$word"*) echo "ERROR: $word" >&2; exit 1 ;; esac
    done
    exit 0 ;;
  "-c import sys, pip"*) echo "{version}"; exit 0 ;;
  "-c import dwlab"*) exit {broken} ;;
esac
exit 3
"""
UV = """#!/bin/sh
case "$1" in
  --version) echo "uv {version} (x86_64)"; exit 0 ;;
  venv) echo "uv venv" >> "{log}"; [ -e "{log}.fails" ] && exit 2; for folder; do :; done
    mkdir -p "$folder/bin"; : > "$folder/pyvenv.cfg"; cp "{log}.python" "$folder/bin/python"; exit 0 ;;
esac
echo "uv $*" >> "{log}"
[ ! -e "{log}.fails" ]
"""


class Checkout:
    """A checkout in a path with a space, and environments whose Python only notes what pip is to do.

    fails: a pip with one of these words on its command line fails, and so does uv if there are any.
    """

    def __init__(self, folder, monkeypatch):
        self.root, self.log, self.monkeypatch = folder / "check out", folder / "log", monkeypatch
        self.root.mkdir()
        for name in ("pyproject.toml", "constraints.txt"):
            (self.root / name).write_text("", encoding="utf-8")
        self.python, self.bin = self.root / ".venv/bin/python", folder / "bin"
        self.record = self.root / ".venv/dwlab-installed.json"
        self.bin.mkdir()
        self.python_is()
        for name in [name for name in os.environ if name.startswith("PIP_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PIP_USER", "0")  # so that what main() sets is undone
        monkeypatch.setenv("PATH", f"{self.bin}{os.pathsep}/bin{os.pathsep}/usr/bin")
        monkeypatch.setattr(lab, "ROOT", self.root)
        monkeypatch.setattr(lab.venv.EnvBuilder, "create", lambda builder, folder: self.create(Path(folder)))
        monkeypatch.setattr(driver, "query", driver.Driver)

    def python_is(self, version=lab.THIS_PYTHON, broken=0):
        self.script(Path(f"{self.log}.python"), PYTHON.format(log=self.log, version=version, broken=broken))
        if self.python.exists():
            shutil.copy(f"{self.log}.python", self.python)

    def script(self, path, text):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def create(self, folder):
        self.note("venv")
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "pyvenv.cfg").write_text("", encoding="utf-8")
        shutil.copy(f"{self.log}.python", folder / "bin/python")

    def note(self, line):
        with self.log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def uv_is(self, version):
        self.script(self.bin / "uv", UV.format(log=self.log, version=version))

    def fails(self, *words):
        Path(f"{self.log}.fails").write_text(" ".join(words), encoding="utf-8")
        if not words:
            Path(f"{self.log}.fails").unlink()

    def make(self, *arguments):
        """The exit status, and what was done since the last time: "venv", "pip .[dev,lab]", "uv .[dev,lab]"."""
        status, lines = lab.main(arguments or ("install",)), []
        if self.log.exists():
            lines = self.log.read_text(encoding="utf-8").splitlines()
            self.log.unlink()
        assert all("--constraint constraints.txt" in line for line in lines if "install" in line)
        done = [re.sub(r"^(pip|uv) .*--editable ", r"\1 ", line) for line in lines]
        return status, done


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    return Checkout(tmp_path, monkeypatch)


def test_installs_once_and_again_only_when_something_changed(checkout):
    assert checkout.make() == (0, ["venv", "pip .[dev,lab]"])
    assert checkout.make() == (0, [])
    settings = json.loads((checkout.root / ".venv/share/jupyter/lab/settings/overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    for name in ("pyproject.toml", "constraints.txt"):
        (checkout.root / name).write_text("# changed", encoding="utf-8")
        assert checkout.make() == (0, ["pip .[dev,lab]"])
        assert checkout.make() == (0, [])
    checkout.monkeypatch.setattr(lab, "ROOT", checkout.root.rename(checkout.root.with_name("moved")))
    assert checkout.make() == (0, ["pip .[dev,lab]"])  # an editable install names the place


def test_the_lab_needs_less_than_the_tests_and_takes_nothing_away(checkout):
    checkout.monkeypatch.setattr(lab, "lab", lambda python: 0)
    assert checkout.make("lab") == (0, ["venv", "pip .[lab]"])
    assert checkout.make("test", "--venv", str(checkout.root / "other"))[1] == ["venv", "pip .[dev,lab]"]
    assert checkout.make("install") == (0, ["pip .[dev,lab]"])
    (checkout.root / "pyproject.toml").write_text("# changed", encoding="utf-8")
    assert checkout.make("lab") == (0, ["pip .[dev,lab]"])


HARMS = {
    "no python": lambda one: one.python.unlink(),
    "half-made": lambda one: (shutil.rmtree(one.root / ".venv/bin"), one.record.unlink()),
    "no record": lambda one: one.record.unlink(),
    "broken record": lambda one: one.record.write_text('{"inputs": 3', encoding="utf-8"),
    "another python": lambda one: one.python_is(ANOTHER),
}


@pytest.mark.parametrize("harm", HARMS)
def test_an_environment_that_is_half_made_is_made_good(checkout, harm):
    checkout.make()
    HARMS[harm](checkout)
    made = ["venv"] if harm in ("no python", "half-made") else []
    assert checkout.make() == (0, [*made, "pip .[dev,lab]"])
    assert checkout.make() == (0, [])


def test_an_unsupported_python_is_refused_and_a_named_one_makes_it_anew(checkout, capsys):
    checkout.python_is("3.14")
    checkout.create(checkout.root / ".venv")
    assert checkout.make() == (2, ["venv"])
    assert ".venv has Python 3.14, dwlab needs 3.11, 3.12, 3.13: remove it" in capsys.readouterr().err
    checkout.python_is()
    assert checkout.make() == (0, ["pip .[dev,lab]"])
    checkout.monkeypatch.setattr(lab, "THIS_PYTHON", ANOTHER)
    assert checkout.make() == (0, [])
    assert checkout.make("install", "--exact") == (0, ["venv", "pip .[dev,lab]"])
    checkout.monkeypatch.setattr(lab, "THIS_PYTHON", "3.14")
    assert checkout.make() == (2, [])
    assert "3.11, 3.12, 3.13; this is 3.14" in capsys.readouterr().err


@pytest.mark.parametrize("works", [False, True], ids=["new", "one that works"])
def test_a_failed_install_is_done_again_and_an_environment_that_works_is_used_as_it_is(checkout, capfd, works):
    if works:
        checkout.make()
        (checkout.root / "pyproject.toml").write_text("# changed", encoding="utf-8")
    else:
        checkout.python_is(broken=1)
    checkout.fails("install")
    assert checkout.make() == ((0, ["pip .[dev,lab]"]) if works else (2, ["venv", "pip .[dev,lab]"]))
    shown = capfd.readouterr().err
    for word in ["Going on with what"] if works else ["ERROR: install", "HTTPS_PROXY=", "PIP_FIND_LINKS=", "PIP_CERT="]:
        assert word in shown
    checkout.fails()
    assert checkout.make() == (0, ["pip .[dev,lab]"])  # with the network back, the update is made


@pytest.mark.parametrize(
    "fails, more, extras, again",
    [
        ([], [], ["dev", "gpu-cu13", "lab"], False),
        (["cuda-toolkit"], ["pip .[dev,lab]", WHOLE], ["dev", "gpu-cu13", "lab"], False),
        (["gpu-cu13"], ["pip .[dev,lab]", WHOLE], ["dev", "lab"], True),
        (["install"], ["pip .[dev,lab]"], None, True),
    ],
)
def test_a_gpu_compiler_that_cannot_be_had_does_not_stop_the_rest(checkout, fails, more, extras, again):
    checkout.monkeypatch.setattr(driver, "query", lambda: H200)
    checkout.python_is(broken=1)
    if fails:
        checkout.fails(*fails)
    done = [f"{WHOLE} cuda-toolkit<13.1", *more]
    assert checkout.make() == (2 if extras is None else 0, ["venv", *done])
    assert (json.loads(checkout.record.read_text())["extras"] if checkout.record.exists() else None) == extras
    assert checkout.make()[1] == (done if again else [])  # what was missing is tried again


def test_the_compiler_follows_the_driver(checkout):
    def seen(cuda, capability=(9, 0)):
        found = driver.Driver(True, cuda, None, (driver.Device("a GPU", capability),), "")
        checkout.monkeypatch.setattr(driver, "query", lambda: found)
        return checkout.make()[1][-1]

    assert seen((12, 2)) == "pip .[dev,gpu-cu12,lab] cuda-toolkit<12.3"
    assert seen((13, 0)) == "pip .[dev,gpu-cu13,lab] cuda-toolkit<13.1"  # in place of the other generation's
    assert seen((13, 0), (6, 0)) == "pip .[dev,gpu-cu12,lab]"  # under a driver that runs every CUDA 12
    shutil.rmtree(checkout.root / ".venv")
    assert seen((11, 8)) == "pip .[dev,lab]"
    assert {"gpu-cu12", "gpu-cu13"} <= set(extras())


@pytest.mark.parametrize(
    "version, settings, fails, done",
    [
        ("0.8.0", {}, [], ["uv venv", "uv .[dev,lab]"]),
        ("1.0.3", {}, [], ["uv venv", "uv .[dev,lab]"]),
        ("0.7.22", {}, [], ["venv", "pip .[dev,lab]"]),
        ("of an unknown kind", {}, [], ["venv", "pip .[dev,lab]"]),
        ("0.8.0", {"PIP_NO_INDEX": "1"}, [], ["venv", "pip .[dev,lab]"]),  # which uv does not read
        ("0.8.0", {}, ["nothing of pip"], ["uv venv", "venv", "uv .[dev,lab]", "pip .[dev,lab]"]),
    ],
)
def test_uv_is_used_where_it_is_there_and_works(checkout, version, settings, fails, done):
    for name, value in settings.items():
        checkout.monkeypatch.setenv(name, value)
    checkout.uv_is(version)
    if fails:
        checkout.fails("nothing-of-pips")
    assert checkout.make() == (0, done)
    assert checkout.make() == (0, [])


def test_a_folder_that_is_no_environment_is_left_alone(checkout, capsys):
    (checkout.root / ".venv").mkdir()
    (checkout.root / ".venv/thesis.tex").write_text("years of work", encoding="utf-8")
    assert checkout.make() == (2, [])
    assert "is no virtual environment: move it away" in capsys.readouterr().err
    assert (checkout.root / ".venv/thesis.tex").read_text(encoding="utf-8") == "years of work"
    assert checkout.make("install", "--venv", "none") == (0, [])


def test_the_set_up_runs_before_anything_is_installed():
    code = "import sys; import lab; assert not {'numpy', 'numba'} & set(sys.modules)"
    command = [sys.executable, "-S", "-c", code]  # -S: without site-packages
    subprocess.run(command, cwd=ROOT / "notebooks", check=True, timeout=600)


# --- JupyterLab, and the lessons of an installed package --------------------------------------------------------------


def arguments(platform="linux", variables=None, superuser=False, wsl=False, snap=False):
    return workbook.jupyter_arguments(ROOT, platform, variables or {}, superuser=superuser, wsl=wsl, snap=snap)


def test_the_lab_opens_on_the_first_lesson():
    shown = arguments(variables={"DISPLAY": ":0", "ARGS": "--port 9000 --ip '0.0.0.0'"})
    assert shown[0] == f"--ServerApp.root_dir={ROOT}" and shown[1].endswith(workbook.FIRST_LESSON)
    assert shown[-4:] == ["--port", "9000", "--ip", "0.0.0.0"] and (ROOT / workbook.FIRST_LESSON).exists()
    assert workbook.FIRST_LESSON.startswith("exercises/"), "the student's copy"


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


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package as a wheel installs it, which nobody may write to."""
    names = "setuptools", "setuptools.command", "setuptools.command.build_py"
    modules = {name: types.ModuleType(name) for name in names}
    modules["setuptools"].setup = lambda **_: None
    modules["setuptools.command.build_py"].build_py = object
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        script = runpy.run_path(str(ROOT / "setup.py"))
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "dwlab", site / "dwlab")  # what is compiled too: it takes seconds
    script["copied"](site / "dwlab")
    for one in (site, *site.rglob("*")):
        one.chmod(0o555 if one.is_dir() else 0o444)
    yield site
    for one in (site, *site.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)


def dwlab_of(site, folder, *command):
    command = [sys.executable, "-m", "dwlab", *command]
    variables = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def test_an_installed_package_has_the_lessons_and_grades_where_they_are_copied_to(installed, tmp_path):
    outside = dwlab_of(installed, tmp_path, "grade", "01_2")
    assert outside.returncode == 2 and "`dwlab lab FOLDER` copies the workbook" in outside.stderr
    course = tmp_path / "course"
    first = json.loads(dwlab_of(installed, tmp_path, "lab", "course", "--no-start", "--json").stdout)
    for kind in ("exercises/*.ipynb", "exercises/*.py"):
        theirs, ours = ({one.name: one.read_bytes() for one in place.glob(kind)} for place in (course, ROOT))
        assert theirs == ours and ours
    assert not (course / "solutions").exists() and not (course / "exercises" / "judges").exists()
    mine = next((course / "exercises").glob("01_2_*.py"))
    mine.write_text(re.sub(r"^compulsory = None$", "compulsory = 7", mine.read_text("utf-8"), flags=re.M), "utf-8")
    again = json.loads(dwlab_of(installed, course / "exercises", "lab", "--no-start", "--json").stdout)
    assert again == {"folder": str(course), "copied": 0, "kept": first["copied"]}
    (found,) = json.loads(dwlab_of(installed, course / "exercises", "grade", "01_2", "--json").stdout)
    assert found["status"] == "unsolved" and found["message"].startswith("`flops` is still None"), "7 is a prediction"


def test_pages_that_lessons_link_to_are_in_the_copy(installed):
    for lesson in (ROOT / "exercises").glob("*.ipynb"):
        for link in re.findall(r"\]\((\.\./[^)#]+)", lesson.read_text(encoding="utf-8")):
            assert (installed / "dwlab" / "workbook" / "exercises" / link).exists(), f"{lesson.name}: {link}"


# --- make test --------------------------------------------------------------------------------------------------------


def test_every_step_runs_and_one_failure_fails(monkeypatch, capfd):
    steps = (lab.Step("broken", ("no_such_module_anywhere",)), lab.Step("sound", ("json.tool", "--help")))
    monkeypatch.setattr(lab, "DOCTOR", steps[1])
    monkeypatch.setattr(lab, "STEPS", steps)
    assert lab.test(Path(sys.executable)) == 1
    out = capfd.readouterr().out
    assert re.search(r"^FAILED +[\d.]+ s  broken$", out, re.M) and re.search(r"^ok +[\d.]+ s  sound$", out, re.M)
    monkeypatch.setattr(lab, "STEPS", steps[1:])
    assert lab.test(Path(sys.executable)) == 0


def test_steps_keep_bytecode_where_none_may_lie_beside_the_sources(monkeypatch, tmp_path, capfd):
    (tmp_path / "shown.py").write_text("import sys; print(sys.dont_write_bytecode, sys.pycache_prefix)")
    monkeypatch.setattr(lab, "DOCTOR", lab.Step("doctor", ("shown",)))
    monkeypatch.setattr(lab, "STEPS", (lab.Step("shown", ("shown",)),))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert lab.test(Path(sys.executable)) == 0
    (folder,) = set(re.findall("^False (.+)$", capfd.readouterr().out, re.M))
    assert not Path(folder).exists() and not list(tmp_path.glob("__pycache__"))


def test_results_are_written_for_ci_where_it_names_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("DWLAB_JUNIT", str(tmp_path / "junit"))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # seconds
    monkeypatch.setattr(lab, "DOCTOR", lab.Step("sound", ("json.tool", "--help")))
    (tmp_path / "test_one.py").write_text("def test_it():\n    pass\n", encoding="utf-8")
    monkeypatch.setattr(lab, "STEPS", (lab.Step("some", ("pytest", "-q", str(tmp_path / "test_one.py"))),))
    assert lab.test(Path(sys.executable)) == 0
    assert 'tests="1"' in (tmp_path / "junit" / "some.xml").read_text(encoding="utf-8")


def test_make_test_runs_lint_tests_and_lessons():
    commands = [" ".join(step.arguments) for step in lab.STEPS]
    for part in ("ruff check .", "pytest", "--nbval", "notebooks/", "-n auto"):
        assert any(part in command for command in commands)


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
    assert done.stdout.strip() == f"{chosen} runs: notebooks/lab.py lab --venv="


def test_without_a_fitting_python_it_is_said_and_a_named_one_is_taken_or_refused(pythons):
    done = pythons({"python3": ("3.9", True), "python": ("2.7", True)})
    assert done.returncode == 2
    assert "dwlab needs Python 3.11, 3.12 or 3.13. python3 is 3.9; python is 2.7;" in done.stderr
    assert "sudo apt install python3.12 python3.12-venv" in done.stderr and "make lab PYTHON=" in done.stderr
    given = {"python3": ("3.12", True), "mine": ("3.13", True), "old": ("3.8", True)}
    done = pythons(given, "PYTHON=mine", "VENV=/tmp/a b")
    assert done.stdout.strip() == "mine runs: notebooks/lab.py lab --venv=/tmp/a b --exact"
    done = pythons(given, "PYTHON=old")
    assert done.returncode == 2 and "old is 3.8" in done.stderr
