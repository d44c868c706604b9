"""`python -m dwlab`: what each command prints and returns, and that a wrong one gets one clear line and status 2."""

import contextlib
import functools
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts import part

import dwlab
from dwlab import __main__ as cli
from dwlab import problems, records
from dwlab.gpu import specs as gpus
from dwlab.gpu import target
from dwlab.kernels import command, registry
from dwlab.kernels.command import whole_id
from dwlab.problems import layers, networks
from dwlab.report import recorded
from dwlab.setup import doctor
from dwlab.text import tabular, terminal
from tests.loaded import kernel_of

NAIVE = "depthwise1d/forward/naive"


def python(*arguments, variables=(), **options):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | dict(variables)
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 600} | options
    return subprocess.run([sys.executable, *arguments], env=environment, **how)


def process(*arguments, **options):
    return python("-m", "dwlab", *arguments, **options)


# --- what commands print ----------------------------------------------------------------------------------------------


def test_stages_lists_the_registry(run):
    status, out, _ = run("stages", "--json")
    rows = json.loads(out)
    assert status == 0 and [row["id"] for row in rows] == [stage.id for stage in registry.stages()]
    for row in rows:
        assert {"op", "path", "order", "name", "file"} <= set(row)
        assert row["id"] == f"{row['op']}/{row['path']}/{row['name']}"
    status, out, _ = run("stages", "--op", "depthwise1d", "--path", "forward")
    forward = [one.id for one in registry.stages("depthwise1d", "forward")]
    assert status == 0 and [line.split()[0] for line in out.splitlines()[2:]] == forward


def test_xray_prints_totals_and_lines(run):
    status, out, _ = run("xray", NAIVE, "--json", "--problem", "2,3,40,5,same")
    data = json.loads(out)
    assert status == 0 and data["stage"] == NAIVE
    assert data["problem"] == {"B": 2, "H": 3, "L": 40, "K": 5, "padding": "same", "dtype": "float32"}
    loads = [access for access in data["accesses"] if access["kind"] == "load"]
    assert data["totals"]["global_load_sectors"] == sum(access["sectors"] for access in loads) > 0
    assert sum(line["flops"] for line in data["lines"]) == data["totals"]["flops"] > 0
    assert data["hazards"] == []


@pytest.mark.parametrize(
    "stage",
    part("test_cli: x-rays", (one for one in registry.stages() if one.op != "depthwise1d"), lambda one: [one.path]),
    ids=lambda one: one.id,
)
def test_xray_takes_a_small_layer_that_the_stage_is_for(run, stage):
    status, out, _ = run("xray", stage.id, "--json")
    assert status == 0 and json.loads(out)["totals"]["requests"] > 0


def test_a_stage_with_hazards_fails(run, monkeypatch):
    kernel = kernel_of("x, w, y, shift", "y[0, 0, cuda.threadIdx.x % 2] = x[0, 0, 0]")
    monkeypatch.setitem(registry._registry, NAIVE, registry.stage(NAIVE).with_kernel(kernel))
    status, out, _ = run("xray", NAIVE, "--json")
    assert status == 1 and json.loads(out)["hazards"][0]["kind"] == "two writers"


def test_version_and_help(run):
    assert run("--version")[:2] == (0, f"dwlab {dwlab.__version__}\n")
    status, out, _ = run("--help")
    assert status == 0
    for name in cli.COMMANDS:
        assert name in out
        status, text, _ = run(name, "--help")
        assert status == 0 and "--json" in text and len(text) > 200 and max(map(len, text.splitlines())) <= 100
    for name in ("plan", "infer"):
        assert all(network in run(name, "--help")[1] for network in networks.NETWORKS)
    assert run() == (0, out, "")


# --- what is wrong ----------------------------------------------------------------------------------------------------


REFUSED = """
studdy => there is no command 'studdy'; is it study?
zzz => there are doctor, stages, xray, check, inspect, predict, plan, infer, study, tune, records, train, grade
--vers => is it --version?
stages --jsn => stages has no option '--jsn'; is it --json?
stages --js => is it --json?
records naive => records takes no 'naive'
xray => OP/PATH/STAGE (see: python -m dwlab xray --help)
xray depthwise1d/forward/naiv => The nearest is 'depthwise1d/forward/naive'
xray NAIVE --problem smal => The nearest is 'small'
xray NAIVE --problem 4,16,0,48 => L
xray NAIVE --problem 8,8,64000,2000 => 8,064,064,000 products
xray NAIVE --problem 8,8,64000,2000 => smaller B, H or K
xray NAIVE --problem paper => give a smaller B
xray NAIVE --problem 4,16,48,48,-3 => padding
xray depthwise2d/forward/naive --problem "N=1 C=8 H=9 K=3" => it needs N, C, H, W and K
xray depthwise2d/forward/naive --problem small => is a problem of depthwise1d
xray NAIVE --problem "N=1 C=8 H=9 W=9 K=3 relu7" => 'relu7' is unknown. The nearest is 'relu
predict depthwise2d/forward/naive => depthwise2d
predict => which stage?
predict NAIVE --gpu t5 => The nearest is 't4'
inspect => OP/PATH/STAGE (see: python -m dwlab inspect --help)
inspect depthwise1d/forward/naiv => The nearest is 'depthwise1d/forward/naive'
inspect NAIVE --cc 9 => write it as '9.0'
inspect NAIVE --cc 9.9 => is not in the table; known: 6.0
inspect NAIVE --ptx --sass => not allowed with argument --ptx
stages --op depthwise1 => The nearest is 'depthwise1d'
stages --path forwards => The nearest is 'forward'
study --op depthwise1 => The nearest is 'depthwise1d'
study --problem 1,2,three,4 => whole numbers
study --problem "N=1 C=x H=3 W=4 K=3" => C must be a whole number, not x
study --problem "N=1 C=2 H=3 W=4 K=3 NHCW" => 'NHCW' is unknown. The nearest is 'NHWC'
study --problem "N=1 C=2 H=3 W=4 K=3 -> N=1 C=3 F=2 H=3 W=4" => the first layer gives
records --op fuse => The nearest is 'fused'
records --path dw => there is no path
records --last 0 => at least 1
records --gpu p100 => no record is of a GPU 'p100'
records --networks --op fused => leave them out
records --networks --grid => not both
grade 99_9 => no exercise is called '99_9'
grade --all no/such/folder => is not a folder
grade --hint two => 'two' is no whole number of at least 1
"""
"""A command line => what it is told; NAIVE is the stage."""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_cannot_be_carried_out_is_said_in_one_line(run, line):
    arguments, _, words = line.replace("NAIVE", NAIVE).partition(" => ")
    status, out, err = run(*shlex.split(arguments))
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1 and "Traceback" not in err


ODD = (
    "", " ", "nosuch", "µ×→😀", "-1", "1.5", "nan", "1e9", "9" * 30, "9" * 5000, "a\nb", "\udc80", "x" * 5000, "{}",
    "%s", "\x1b[31mred", "--", "N=1", "B=4", "DW 3×3", "DW 3×3 8@" + "9" * 20, "PW 8→8 @0", "B=1 H=1 L=0 K=1",
)  # fmt: skip
"""What nobody means: no option and no argument of any command takes one of these."""
BEFORE = {"xray": [NAIVE], "inspect": [NAIVE], "predict": [NAIVE], "plan": ["ceit_t"], "infer": ["ceit_t"]}
ANY = {"checkpoint", "record", "report", "results"}  # any name of a file will do


def _odd():
    """(command, option or argument, words): each place where a value can stand."""
    for name in cli.COMMANDS:
        command = cli.parser_of(name)
        for action in command._actions:
            if action.nargs == 0 or action.dest == "help":
                continue
            if not action.option_strings:
                taken = ODD[1:2] if (name, action.dest) == ("lab", "folder") else ODD[2:]
                yield pytest.param([name], "", taken, id=f"{name} {action.dest}")
                continue
            words, taken = [name, *BEFORE.get(name, ())], ODD[:2] if action.dest in ANY else ODD
            if action.dest == "learning_rate":
                taken = [value for value in ODD if value not in ("1.5", "1e9", "9" * 30)]  # which are some
            yield pytest.param(words, action.option_strings[0], taken, id=f"{name} {action.dest}")


@pytest.mark.family(0.3, by=("words",))  # of each command one option, and a part of the others
@pytest.mark.parametrize("words, option, values", list(_odd()))
def test_what_nobody_means_is_one_clear_line_wherever_it_stands(run, words, option, values):
    pair = option == "--data"
    for value in values:
        given = [option, value, value] if pair else [f"{option}={value}"] if option else ["--", value]
        for more in ([], ["--json"]):
            status, out, err = run(*words, *more, *given)
            assert (status, out) == (2, ""), value[:50]
            assert err.startswith("dwlab: ") and err.endswith("\n") and err[:-1].isprintable(), (value[:50], err)
            assert len(err) < 1000 and "Error" not in err


def test_damage_is_told_once_and_not_of_what_follows_from_it(run, tmp_path, monkeypatch):
    for file in records.FOLDER.glob("*.jsonl.*"):
        whole = file.read_bytes()
        (tmp_path / file.name).write_bytes(whole[: len(whole) // 2] if "h200" in file.name else whole)
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    status, _, err = run("records", "--last")
    assert status == 1 and err.startswith("dwlab: nvidia-h200.jsonl.xz is damaged") and err.count("\n") == 1

    def load_twice(options):
        for _ in range(2):
            records.load_runs()
        return 0

    monkeypatch.setattr(command, "stages", load_twice)
    assert run("stages")[2] == err


FAULTS = {
    "memory": (MemoryError("8 EiB"), 2, "dwlab: this takes more memory than there is: 8 EiB\n"),
    "a package": (
        ModuleNotFoundError(name="nowhere"), 2,
        "dwlab: nowhere is not installed: run make lab, or pip install -e '.[lab]' in its folder\n",
    ),
    "Ctrl-C": (KeyboardInterrupt(), 130, "stopped\n"),
    "ours": (KeyError("x"), None, ""),
}  # fmt: skip


@pytest.mark.parametrize(("error", "status", "says"), FAULTS.values(), ids=FAULTS)
def test_what_is_no_fault_of_ours_is_one_line_and_ours_keeps_its_traceback(run, monkeypatch, error, status, says):
    monkeypatch.setattr(command, "stages", mock.Mock(side_effect=error))
    with pytest.raises(KeyError) if status is None else contextlib.nullcontext():
        assert run("stages") == (status, "", says)


def test_a_closed_stdout_and_ctrl_c_while_modules_load_are_no_traceback():
    def stderr(*words, before):
        return subprocess.run([sys.executable, *words], stderr=-1, preexec_fn=before).stderr

    finder = """class Finder:
    def find_spec(name, *_):
        if name == "argparse":
            os.kill(os.getpid(), signal.SIGINT)
"""
    loading = "sys.meta_path.insert(0, Finder); runpy.run_module('dwlab', run_name='__main__', alter_sys=True)"
    loading = f"import os, runpy, signal, sys\n{finder}{loading}"
    assert stderr("-m", "dwlab", "stages", before=lambda: os.close(1)) == b""
    assert stderr("-c", loading, before=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)) == b""


@pytest.mark.parametrize(("mode", "says"), [("cuda", "'cuda' is not a mode"), ("gpu", "no GPU can be used")])
def test_a_target_that_cannot_be_is_one_line(mode, says):
    done = process("study", "--quick", text=True, variables={target.VARIABLE: mode, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr


# --- names, problems, tables ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["infer vgg16", "xray nosuch", "plan xception --picture a.txt"])
def test_what_is_refused_by_its_name_is_refused_before_numba_is_imported(arguments):
    code = "import sys; from dwlab.__main__ import main; status = main(sys.argv[1:]); "
    code += "sys.exit(10 * ('numba' in sys.modules) + status)"
    done = python("-c", code, *arguments.split(), text=True)
    assert done.returncode == 2, done.stderr
    assert "The nearest is" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "known", [networks.NETWORKS, tuple(gpus.NAMES), registry.ids(), tuple(problems.PROBLEMS)], ids=len
)
def test_one_letter_wrong_is_near_and_another_word_is_not(known):
    for name in known:
        for i in range(0, len(name), 3):
            if len(name) > 2:
                assert problems.near(name[:i] + name[i + 1 :], known), name
        assert problems.near(name.upper(), known) == name
    for other in ("qqq", "zzzzzzzz", "", "jjjjjjjjjjjjjjjjjjj"):
        assert problems.near(other, known) == "" and "The nearest" not in problems.nearest(other, known)


def test_the_end_of_an_id_names_a_stage_and_several_are_listed(run):
    for id in registry.ids():
        end = id.rpartition("/")[2]
        ending = [one for one in registry.ids() if one.endswith(f"/{end}")]
        assert whole_id(end) == (id if len(ending) == 1 else end)
        assert whole_id(id) == id
    status, _, err = run("xray", "naive")
    every = [one.id for one in registry.stages() if one.name == "naive"]
    assert status == 2 and all(one in err for one in every)


@pytest.mark.parametrize("text", ["MobileNet_V2", "mobilenetv2", "MOBILENET-V2", "mobilenet v2"])
def test_a_networks_name_is_taken_however_it_is_written(text):
    assert networks.named(text) == networks.network(text).name == "mobilenet_v2"


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_a_problem_is_taken_as_a_plan_prints_it(name):
    made = networks.network(name, layout="NHWC")
    planned = [one.problem for one in made.layers if one.planned]
    for layer in {networks.summary(one): one for one in planned}.values():
        text = networks.summary(layer)
        for written in (text, text.replace("×", "x").replace("→", "->"), text.lower()):
            found = layers.problem(written)
            assert networks.summary(found) == text
            for what in ("op", "N", "C", "H", "W", "P", "Q", "layout", "dtype", "channels_out"):
                assert getattr(found, what) == getattr(layer, what), (written, what)
    for one, two in itertools.pairwise(planned):
        try:
            pair = layers.Fused(one, two)
        except problems.ProblemError:
            continue
        found = layers.problem(f"{networks.summary(one)} + {networks.summary(two)} N=4 float16")
        assert (found.kind, found.N, found.dtype) == (pair.kind, 4, "float16")


def test_problems_are_taken_as_every_command_prints_them():
    seen = {(row.op, json.dumps(dict(row.problem))): row for row in records.load_all() if row.op != "network"}
    for row in seen.values():
        layers.problem(recorded._short(row.op, row.problem))  # as `records` has it
    for one in (*problems.PROBLEMS.values(), *(problems.DepthwiseConv1d(2, 3, 9, 4, p, d) for p in ("same", 0, 3)
                                               for d in problems.DTYPES)):  # fmt: skip
        assert layers.problem(str(one)) == one  # as x-rays and tables of a study have it
    for stage in registry.stages():
        examples = layers.examples(stage.op, stage.path) if stage.op != "depthwise1d" else ()
        assert not examples or any(map(stage.supports, examples)), stage.id  # what a command takes if none is given
        for one in examples:
            assert layers.problem(str(one)) == one


def test_the_command_takes_the_words_of_a_plan(run):
    status, out, _ = run("xray", "depthwise2d/forward/naive", "--problem", "DW 3×3 s2 8@12→6", "--json")
    assert status == 0 and json.loads(out)["problem"] | {"C": 8, "H": 12, "stride": 2} == json.loads(out)["problem"]
    for wrong, says in (
        ("DW 3×3 s2 8@12→7", "its output is 6×6"), ("DW 3×5 8@12", "write it as"), ("1,8,12,12", "takes such as 'N=1"),
        ("smal", "takes such as 'N=1"), ("PW 8→8 @4", "is a problem of pointwise"),
    ):  # fmt: skip
        status, _, err = run("xray", "depthwise2d/forward/naive", "--problem", wrong)
        assert status == 2 and says in err and "B,H,L,K" not in err


def test_records_are_filtered(run):
    every = json.loads(run("records", "--json")[1])
    some = json.loads(run("records", "--json", "--op", "fused", "--path", "dwpw")[1])
    assert some == [row for row in every if (row["op"], row["path"]) == ("fused", "dwpw")] and some
    last = json.loads(run("records", "--json", "--op", "fused", "--path", "dwpw", "--last")[1])
    assert last == [row for row in some if row["file"] == some[-1]["file"]]
    three = json.loads(run("records", "--json", "--op", "fused", "--last", "3")[1])
    assert len({row["file"] for row in three}) == 3
    assert {row["gpu"] for row in json.loads(run("records", "--json", "--gpu", "h200")[1])} == {"NVIDIA H200"}
    status, out, _ = run("records", "--networks")
    assert status == 0 and set(networks.NETWORKS[:3]) <= set(out.split())
    assert run("records", "--grid", "--last")[1].splitlines()[1].startswith("----")


@given(
    st.integers(8, 200), st.lists(st.tuples(*[st.text("abcé ×→1", max_size=30)] * 4), min_size=1, max_size=5),
    st.integers(0, 3),
)  # fmt: skip
def test_a_table_fits_the_width_that_there_is(columns, body, cut):
    table = ["one", "two", "three", "four"], body, (0, 1)
    text = terminal.table(*table, columns=columns, cut=cut, spare=[i for i in range(4) if i != cut])
    assert max(map(len, text.splitlines())) <= max(columns, 5)
    assert terminal.table(*table) == tabular.columns(*table)


USUAL = [
    ("doctor",), ("stages",), ("xray", "depthwise2d/forward/columns"), ("predict", NAIVE), ("predict", "--gpus"),
    ("plan", "mobilenet_v1", "--validate"), ("records", "--networks"), ("records", "--last", "5"),
    ("grade", "00_1", "10_1"),
]  # fmt: skip
"""Commands as they are given, each in a second or two."""


@pytest.mark.parametrize("arguments", USUAL, ids=" ".join)
def test_what_a_terminal_gets_fits_it_and_json_is_json(run, monkeypatch, capsys, arguments):
    monkeypatch.setattr(doctor, "collect", functools.cache(doctor.collect))  # it asks other processes
    text = run(*arguments, "--json")[1]
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    for width in (40, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        status, out, _ = run(*arguments)
        assert status in (0, 1) and out and max(map(len, out.splitlines())) <= width
        monkeypatch.setattr(sys.stdout, "isatty", lambda: False)


def test_records_are_read_once_by_a_process_whatever_it_does():
    code = """
        import collections, contextlib, io, json, sys
        from dwlab import records
        from dwlab.__main__ import main
        read, found = records.file_bytes, collections.Counter()
        records.file_bytes = lambda path: (found.update([path.name]), read(path))[1]
        with contextlib.redirect_stdout(io.StringIO()):
            for arguments in json.loads(sys.argv[1]):
                assert main(arguments) == 0, arguments
        import dwlab.report, dwlab.widgets.planner  # noqa: E401
        dwlab.report.newest()
        print(json.dumps(found))
    """
    commands = [list(one) for one in USUAL if one[0] in ("plan", "predict", "records")]
    done = python("-c", textwrap.dedent(code), json.dumps(commands), text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys((file.name for file in records.FOLDER.glob("*.jsonl.*")), 1)


@given(st.text("ab  .–", max_size=200), st.integers(20, 100))
def test_a_line_is_fitted_and_loses_no_word_of_a_sentence(line, columns):
    text = terminal.fitted(line, columns)
    assert max(map(len, text.splitlines()), default=0) <= max(columns, len(line) if not line.strip() else 0)
    if len(line) > columns and "  " not in line.strip() and max(map(len, line.split())) < columns // 2:
        assert text.split() == line.split()


def test_who_waits_is_told_and_what_is_printed_wipes_that_off(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "PATIENCE_S", 0.01)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    seen = threading.Event()
    write = sys.stderr.write
    monkeypatch.setattr(sys.stderr, "write", lambda text: (seen.set() if "study works" in text else None, write(text)))
    with terminal.attended("study"):
        assert seen.wait(600)
        print("right")
    out, err = capsys.readouterr()
    assert out == "right\n" and err.startswith("\rstudy works, 0 s so far") and err.endswith(" \r")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with terminal.attended("study"):
        print("right")
    assert capsys.readouterr() == ("right\n", "")


@given(
    st.lists(
        st.sampled_from(["\x1b[1m", "\x1b[31;1m", "\x1b]0;t\x07", "\x1b[2J", "\r", "\x07", "\x1b(B", "word", " ", "\n"])
    )
)
def test_errors_hold_nothing_that_a_terminal_would_obey(parts):
    text = terminal.plain("".join(parts))
    assert text.split() == "".join(one if one.isspace() or one == "word" else "" for one in parts).split()


def test_written_files_are_named_and_what_cannot_be_written_is_refused(run, tmp_path):
    picture = tmp_path / "made" / "here" / "a.png"
    assert run("plan", "ceit_t", "--picture", str(picture))[2] == f"wrote {picture}\n" and picture.exists()
    status, out, err = run("plan", "ceit_t", "--picture", str(tmp_path / "a.txt"))
    assert (status, out) == (2, "") and "does not end in .png" in err and not (tmp_path / "a.txt").exists()
    (tmp_path / "file").touch()
    status, _, err = run("xray", NAIVE, "--save", str(tmp_path / "file" / "page.html"))
    assert status == 2 and err.startswith("dwlab: cannot write")


def test_progress_is_shown_on_a_terminal_only(capsys, monkeypatch):
    for shown in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda shown=shown: shown)
        with terminal.progress(2) as told:
            told("first")
            told("second")
        err = capsys.readouterr().err
        assert "second" in err if shown else err == ""


def test_the_present_gpu_that_is_not_there_is_answered_for_the_command_line(run, monkeypatch):
    monkeypatch.setattr(target, "mode", "simulated")
    status, _, err = run("plan", "ceit_t", "--gpu", "present")
    assert status == 2 and "--gpu present: there is none here" in err and "()" not in err and "t4" in err


def test_an_x_ray_of_several_files_names_them_keeps_indentation_and_says_where_most_comes_from(run):
    _, out, _ = run("xray", "depthwise2d/forward/planes", "--problem", "DW 3×3 8@6 bias NCHW")
    lines = out.splitlines()
    assert any(line.strip().startswith("# ") and line.endswith("forward_5_planes.py") for line in lines)
    assert lines[2].startswith("most of")
    last = next(i for i, line in enumerate(lines) if "sums[deep" in line)
    words = ("for deep in", "for e in", "if s +", "sums[deep")
    outer, inner, guard, sums = (line.index(word) for line, word in zip(lines[last - 3 :], words, strict=False))
    assert outer + 12 == inner + 8 == guard + 4 == sums


# --- pipes and encodings ----------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error():
    read, write = os.pipe()
    os.close(read)  # the first write already finds no reader
    try:
        done = process("xray", NAIVE, "--json", stdout=write)
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
OTHER = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    "line, variables, encoding, words",
    [
        ("stages", ASCII, "ascii", ""),
        (f"xray {NAIVE}", ASCII, "ascii", ""),
        ("grade --help", ASCII, "ascii", ""),
        ("--help", OTHER | {"LC_ALL": "en_US.ISO-8859-1"}, "utf-8", ""),
        ("grade --help", OTHER | {"LC_ALL": "C"}, "utf-8", "STUDENT/10_1_….py"),
    ],
)
def test_every_command_prints_whatever_the_code_page_and_a_pipe_gets_utf8(line, variables, encoding, words):
    done = process(*line.split(), variables=variables)
    assert done.returncode == 0 and words in done.stdout.decode(encoding), done.stderr
    assert done.stderr == b""
