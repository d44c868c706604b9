"""`python -m dwlab`: what each command prints and returns, and that a wrong one gets one clear line and status 2."""

import json
import os
import subprocess
import sys

import pytest

import dwlab
from dwlab import __main__ as cli
from dwlab import stages, target

NAIVE = "depthwise1d/forward/naive"


@pytest.fixture
def run(capsys):
    """Runs a command in this process: (status, stdout, stderr)."""

    def command(*arguments):
        try:
            status = cli.main(arguments)
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return command


def process(*arguments, **options):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | options.pop("variables", {})
    return subprocess.run(
        [sys.executable, "-m", "dwlab", *arguments], env=environment, capture_output=True, timeout=120, **options
    )


# --- what commands print ----------------------------------------------------------------------------------------------


def test_stages_lists_the_registry(run):
    status, out, _ = run("stages", "--json")
    rows = json.loads(out)
    assert status == 0 and [row["id"] for row in rows] == [stage.id for stage in stages.stages()]
    for row in rows:
        assert {"op", "path", "order", "name", "file"} <= set(row)
        assert row["id"] == f"{row['op']}/{row['path']}/{row['name']}"
    status, out, _ = run("stages", "--op", "depthwise1d", "--path", "forward")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == [s.id for s in stages.stages("depthwise1d", "forward")]


def test_stages_of_a_path_leaves_the_others_out(run):
    assert json.loads(run("stages", "--json", "--path", "weight_grad")[1]) == [
        row for row in stages.describe() if row["path"] == "weight_grad"
    ]


def test_xray_prints_totals_and_lines(run):
    status, out, _ = run("xray", NAIVE, "--json", "--problem", "2,3,40,5,same")
    data = json.loads(out)
    assert status == 0 and data["stage"] == NAIVE
    assert data["problem"] == {"B": 2, "H": 3, "L": 40, "K": 5, "padding": "same", "dtype": "float32"}
    loads = [access for access in data["accesses"] if access["kind"] == "load"]
    assert data["totals"]["global_load_sectors"] == sum(access["sectors"] for access in loads) > 0
    assert sum(line["flops"] for line in data["lines"]) == data["totals"]["flops"] > 0
    assert data["hazards"] == []


def test_xray_as_text_names_stage_problem_and_lines(run):
    status, out, _ = run("xray", NAIVE)
    assert status == 0 and out.startswith(f"{NAIVE} on B=4 H=16 L=48 K=48 padding=causal\n")
    assert "per request" in out


@pytest.mark.parametrize("stage", [one for one in stages.stages() if one.op != "depthwise1d"], ids=lambda one: one.id)
def test_xray_takes_a_small_layer_that_the_stage_is_for(run, stage):
    status, out, _ = run("xray", stage.id, "--json")
    assert status == 0 and json.loads(out)["totals"]["requests"] > 0


def test_xray_takes_a_layer_as_it_prints_itself(run):
    text = "N=2 C=8 H=9 W=7 K=3 stride 2 NHWC bias relu6"
    status, out, _ = run("xray", "depthwise2d/forward/naive", "--problem", text)
    assert status == 0 and out.startswith(f"depthwise2d/forward/naive on {text}\n")


def test_xray_counts_four_blocks_as_four_times_one(run):
    def sectors(b):
        arguments = ("xray", "depthwise1d/forward/coalesced", "--json", "--problem", f"{b},4,32,7")
        return json.loads(run(*arguments)[1])["totals"]["sectors"]

    assert sectors(8) == 4 * sectors(2)


def test_xray_refuses_long_filters_on_few_threads(run):
    status, out, err = run("xray", NAIVE, "--problem", "8,8,64000,2000")
    assert (status, out) == (2, "") and "8,064,064,000 products" in err and "smaller B, H or K" in err


def test_xray_refuses_what_takes_minutes(run):
    status, out, err = run("xray", NAIVE, "--problem", "paper")
    assert (status, out) == (2, "") and "give a smaller B" in err


def test_a_stage_with_hazards_fails(run, monkeypatch):
    good = stages.stage(NAIVE)
    from dwlab import cuda

    @cuda.jit
    def kernel(x, w, y, shift):
        y[0, 0, cuda.threadIdx.x % 2] = x[0, 0, 0]

    monkeypatch.setitem(stages._registry, NAIVE, good.with_kernel(kernel))
    status, out, _ = run("xray", NAIVE, "--json")
    assert status == 1 and json.loads(out)["hazards"][0]["kind"] == "two writers"


def test_records_and_study_and_grade_and_doctor_are_their_rooms(run, monkeypatch):
    from dwlab import doctor, exercises, study
    from dwlab.records import command

    seen = {}
    for name, room in {"doctor": doctor, "records": command, "study": study, "grade": exercises}.items():
        monkeypatch.setattr(room, "main", lambda options, name=name: seen.update({name: options}) or 1)
        assert run(name, "--json")[0] == 1
        assert seen[name].json is True
    run("study", "--op", "o", "--path", "p", "--problem", "small", "--problem", "1,2,3,4", "--quick", "--record", "f")
    options = vars(seen["study"])
    assert options | {"op": "o", "path": "p", "quick": True, "record": "f", "json": False} == options
    assert options["problem"] == ["small", "1,2,3,4"]
    run("grade", "10_1", "11_2", "--hint", "2")
    assert (seen["grade"].names, seen["grade"].hint, seen["grade"].all) == (["10_1", "11_2"], 2, None)
    run("grade", "--all", "handed_in")
    assert (seen["grade"].names, seen["grade"].all) == ([], "handed_in")


def test_records_json_is_a_row_a_measurement(run):
    status, out, _ = run("records", "--json")
    assert status == 0
    for row in json.loads(out):
        assert {
            "gpu", "date", "op", "path", "stage", "problem", "dtype", "time_us", "effective_gbps", "copy_gbps",
            "fraction_of_copy", "speedup_vs_naive",
        } <= set(row)  # fmt: skip


def test_version_and_help(run):
    assert run("--version")[:2] == (0, f"dwlab {dwlab.__version__}\n")
    status, out, _ = run("--help")
    assert status == 0
    for command in ("doctor", "stages", "xray", "inspect", "predict", "study", "records", "grade"):
        assert command in out
        status, text, _ = run(command, "--help")
        assert status == 0 and "--json" in text and len(text) > 200 and max(map(len, text.splitlines())) <= 100
    assert run() == (0, out, "")


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["studdy"], "there is no command 'studdy'; is it study?"),
        (["zzz"], "there are doctor, stages, xray, inspect, predict, plan, infer, study, records, train, grade"),
        (["--vers"], "is it --version?"),
        (["stages", "--jsn"], "stages has no option '--jsn'; is it --json?"),
        (["stages", "--js"], "is it --json?"),
        (["records", "naive"], "records takes no 'naive'"),
        (["xray"], "OP/PATH/STAGE (see: python -m dwlab xray --help)"),
        (["xray", "depthwise1d/forward/naiv"], "The nearest is 'depthwise1d/forward/naive'"),
        (["xray", NAIVE, "--problem", "smal"], "The nearest is 'small'"),
        (["xray", NAIVE, "--problem", "4,16,0,48"], "L"),
        (["xray", NAIVE, "--problem", "4,16,48,48,-3"], "padding"),
        (["xray", "depthwise2d/forward/naive", "--problem", "N=1 C=8 H=9 K=3"], "it needs N, C, H, W and K"),
        (["xray", "depthwise2d/forward/naive", "--problem", "small"], "is a problem of depthwise1d"),
        (["xray", NAIVE, "--problem", "N=1 C=8 H=9 W=9 K=3 relu7"], "'relu7' is unknown. The nearest is 'relu"),
        (["predict", "depthwise2d/forward/naive"], "depthwise2d"),
        (["inspect"], "OP/PATH/STAGE (see: python -m dwlab inspect --help)"),
        (["inspect", "depthwise1d/forward/naiv"], "The nearest is 'depthwise1d/forward/naive'"),
        (["inspect", NAIVE, "--cc", "9"], "write it as '9.0'"),
        (["inspect", NAIVE, "--cc", "9.9"], "is not in the table; known: 6.0"),
        (["inspect", NAIVE, "--ptx", "--sass"], "not allowed with argument --ptx"),
        (["stages", "--op", "depthwise1"], "The nearest is 'depthwise1d'"),
        (["stages", "--path", "forwards"], "The nearest is 'forward'"),
        (["study", "--op", "depthwise1"], "The nearest is 'depthwise1d'"),
        (["study", "--problem", "1,2,three,4"], "whole numbers"),
        (["grade", "99_9"], "no exercise is called '99_9'"),
        (["grade", "--all", "no/such/folder"], "is not a folder"),
        (["grade", "--hint", "two"], "invalid int value: 'two'"),
    ],
)
def test_what_cannot_be_carried_out_is_said_in_one_line(run, arguments, words):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1 and "Traceback" not in err


def test_a_package_that_is_missing_is_named(run, monkeypatch):
    monkeypatch.setattr(cli, "_run", lambda options: __import__("no_such_module_anywhere"))
    status, _, err = run("records")
    assert status == 2 and err == (
        "dwlab: no_such_module_anywhere is not installed: run make lab, or pip install -e . in its folder\n"
    )


def test_a_fault_of_ours_keeps_its_traceback(run, monkeypatch):
    monkeypatch.setattr(cli, "_run", lambda options: {}["x"])
    with pytest.raises(KeyError):
        run("records")


def test_ctrl_c_is_no_traceback(run, monkeypatch):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    assert run("study") == (130, "", "stopped\n")


def test_a_target_that_is_no_mode_is_one_line(monkeypatch):
    done = process("study", "--quick", text=True, variables={target.VARIABLE: "cuda"})
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and "'cuda' is not a mode" in done.stderr


def test_gpu_asked_for_without_one_is_one_line():
    done = process("study", "--quick", text=True, variables={target.VARIABLE: "gpu", "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and "no GPU can be used" in done.stderr


# --- pipes and encodings ----------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_is_no_error():
    command = f'"{sys.executable}" -m dwlab xray {NAIVE} --json'
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    read, write = os.pipe()
    os.close(read)  # the first write already finds no reader
    try:
        done = subprocess.run(command, shell=True, env=environment, stdout=write, stderr=subprocess.PIPE, timeout=120)
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_every_command_prints_whatever_the_code_page(encoding):
    for arguments in (("stages",), ("xray", NAIVE), ("grade", "--help")):
        done = process(*arguments, variables={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
        assert done.returncode == 0, done.stderr
        done.stdout.decode(encoding)


def test_a_pipe_gets_utf8_where_the_locale_has_another_code_page():
    done = process("--help", variables={"LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert done.returncode == 0 and done.stderr == b""
    done = process("grade", "--help", variables={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert "STUDENT/10_1_….py" in done.stdout.decode("utf-8")
