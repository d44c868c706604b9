"""The hardware's counters: what is asked of ncu, and how its answers and its refusals are read."""

import subprocess

import pytest

from dwlab import problems
from dwlab.kernels import registry
from dwlab.measure import counters
from dwlab.measure.counters import METRICS, CountersError
from dwlab.problems import DepthwiseConv1d
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
TODO = registry.stages("depthwise1d", "forward")[:2]
SHAPES = (problems.SMALL, DepthwiseConv1d(2, 3, 31, 7, "same"))


def line(launch, metric, value, unit="sector"):
    return (
        f'"{launch}","41","python3","127.0.0.1","kernel","1","7","(8, 8, 8)","(6, 2, 1)","0","9.0",'
        f'"Command line profiler metrics","{metric}","{unit}","{value}"'
    )


def output(launches=4, skip=()):
    lines = ["==PROF== Connected to process 41", "==PROF== Profiling kernel: 0%....100%", HEAD]
    for launch in range(launches):
        for i, metric in enumerate(metric for metrics in METRICS.values() for metric in metrics):
            if (launch, i) not in skip:
                lines.append(line(launch, metric, f"{1000 * launch + 1_234_000 + i:,}"))
    return "\n".join(lines) + "\n"


class Ncu:
    """Stands for the profiler: remembers its command, gives an answer."""

    def __init__(self, stdout, stderr="", status=0):
        self.answer = (stdout, stderr, status)

    def __call__(self, command, environment):
        self.command, self.environment = command, environment
        stdout, stderr, status = self.answer
        return subprocess.CompletedProcess(command, status, stdout, stderr)


def test_each_launch_is_what_was_asked_and_belongs_to_its_stage_and_problem():
    ncu = Ncu(output())
    found = counters.measure(TODO, SHAPES, run=ncu, ncu="ncu")
    assert [(one.stage, one.problem["L"]) for one in found] == [
        ("naive", 48), ("coalesced", 48), ("naive", 31), ("coalesced", 31),
    ]  # fmt: skip
    assert [one.load_requests for one in found] == [1_234_000, 1_235_000, 1_236_000, 1_237_000]
    assert found[3].shared_bank_conflicts == 1_237_012
    # Reductions and atomics are two metrics each, and one number.
    assert found[1].atomic_requests == 1_235_004 + 1_235_005 and found[1].atomic_sectors == 1_235_006 + 1_235_007
    assert (found[0].l2_read_sectors, found[0].l2_write_sectors) == (1_234_008, 1_234_009)
    assert found[2].predicted == TODO[0].traffic(SHAPES[1]).to_dict()
    command = ncu.command
    assert command[:3] == ["ncu", "--clock-control", "none"]  # clocks are left alone
    assert command[command.index("-m") : command.index("-m") + 2] == ["-m", "dwlab.measure.counters"]
    launches = [tuple(command[i + 1 : i + 3]) for i, word in enumerate(command) if word == "--launch"]
    assert launches == [
        (f"depthwise1d/forward/{name}", problem) for problem in map(str, SHAPES) for name in ("naive", "coalesced")
    ]
    assert ncu.environment["DWLAB_TARGET"] == "gpu"


def test_without_ncu_it_says_where_it_comes_from(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CountersError, match="ncu is not on the PATH: it comes with the CUDA toolkit"):
        counters.measure(TODO, SHAPES)


def test_a_user_who_may_not_read_counters_is_told_what_to_do():
    refusal = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    for ncu in (Ncu(refusal, status=1), Ncu("", refusal, 1), Ncu(refusal)):
        with pytest.raises(CountersError, match="may not read the GPU's counters.*run as root"):
            counters.measure(TODO, SHAPES, run=ncu, ncu="ncu")


@pytest.mark.parametrize(
    "ncu, message",
    [
        (Ncu(output(3)), "3 of 4 launches"),
        (Ncu(output(5)), "5 of 4 launches"),
        (Ncu(output(), "Traceback\nValueError: no", 1), "status 1 and 4 of 4 launches; its last line: ValueError: no"),
        (Ncu(""), "0 of 4 launches; its last line: no output"),
        (Ncu("no kernels were profiled"), "its last line: no kernels were profiled"),
    ],
)
def test_an_answer_that_is_not_whole_is_not_used(ncu, message):
    with pytest.raises(CountersError, match=message):
        counters.measure(TODO, SHAPES, run=ncu, ncu="ncu")


def test_a_metric_that_this_gpu_does_not_count_is_none_and_its_launch_stays():
    text = output(skip={(0, 2)}).replace('"1,235,003"', '"n/a"').replace('"1,235,004"', '"n/a"')
    found = counters.measure(TODO, SHAPES, run=Ncu(text), ncu="ncu")
    assert len(found) == 4
    assert found[0].store_requests is None and found[0].store_sectors == 1_234_003
    assert found[1].store_sectors is None and found[1].store_requests == 1_235_002
    assert found[1].atomic_requests == 1_235_005  # of two metrics, the one that there is
    assert "1,234,003" in counters.table(found) and "1,235,001" in counters.table(found)
    assert counters.parse("") == [] and counters.parse(HEAD) == []


PAIR = Fused(
    Pointwise(2, 8, 16, 6, 6, layout="NHWC", dtype="float16", bias=True, activation="relu6"),
    DepthwiseConv2d(2, 16, 6, 6, 3, 2, layout="NHWC", dtype="float16", bias=True),
)
LAUNCHES = [
    (registry.stage("depthwise2d/forward/columns"), PAIR.second),
    (registry.stage("pointwise/forward/shared"), PAIR.first),
    (registry.stage("fused/pwdw/strips"), PAIR),
]


def test_launches_of_layers_are_told_to_the_child_in_words(monkeypatch):
    ncu, launched = Ncu(output(3)), []
    found = counters.count(LAUNCHES, run=ncu, ncu="ncu", compiled="kernels", seconds=60)
    monkeypatch.setattr(counters, "launch_once", lambda stage, problem: launched.append((stage, problem)))
    loaded = []
    monkeypatch.setattr(counters.ahead, "load", loaded.append)
    start = ncu.command.index("dwlab.measure.counters") + 1
    assert counters.main(ncu.command[start:]) == 0
    assert launched == LAUNCHES and loaded == ["kernels"]
    assert [one.stage for one in found] == ["columns", "shared", "strips"]
    assert found[2].path == "pwdw" and found[2].dtype == "float16" and set(found[2].problem) == {"first", "second"}
    assert found[1].predicted == LAUNCHES[1][0].traffic(PAIR.first).to_dict()
    assert (found[0].l2_sm_read_sectors, found[0].l2_sm_write_sectors) == (1_234_013, 1_234_014)


def test_launches_that_the_time_did_not_reach_are_none_only_where_a_time_was_given():
    found = counters.count(LAUNCHES, run=Ncu(output(2)), ncu="ncu", seconds=60)
    assert [one and one.stage for one in found] == ["columns", "shared", None]
    for answer, seconds in ((2, None), (4, 60), (0, 60)):
        with pytest.raises(CountersError, match=f"{answer} of 3 launches"):
            counters.count(LAUNCHES, run=Ncu(output(answer)), ncu="ncu", seconds=seconds)


def test_a_launch_that_fails_does_not_shift_the_others(monkeypatch, capsys):
    def fails(stage, problem):
        if stage.name == "shared":
            raise ValueError("too large")

    monkeypatch.setattr(counters, "launch_once", fails)
    child = [word for stage, problem in LAUNCHES for word in ("--launch", stage.id, str(problem))]
    assert counters.main([*child, "--seconds", "60"]) == 0
    said = capsys.readouterr().out
    assert said == "launch 1 failed: ValueError: too large\n"
    found = counters.count(LAUNCHES, run=Ncu(said + output(2)), ncu="ncu", seconds=60)
    assert [one and (one.stage, one.load_requests) for one in found] == [
        ("columns", 1_234_000), None, ("strips", 1_235_000),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="too large"):
        counters.main(child)
    with pytest.raises(CountersError, match="3 of 3 launches"):  # one that failed was counted all the same
        counters.count(LAUNCHES, run=Ncu(said + output(3)), ncu="ncu", seconds=60)


def test_a_metric_that_this_ncu_does_not_know_is_left_out_and_the_others_asked_again():
    class Older(Ncu):
        asked = ()

        def __call__(self, command, environment):
            metrics = command[command.index("--metrics") + 1].split(",")
            self.asked = (*self.asked, metrics)
            unknown = "lts__t_sectors_srcunit_tex_op_read.sum"
            if unknown in metrics:
                return subprocess.CompletedProcess(command, 1, f"==ERROR== Failed to find metric {unknown}\n", "")
            return super().__call__(command, environment)

    ncu = Older(output(3).replace("lts__t_sectors_srcunit_tex_op_read.sum", "another"))
    found = counters.count(LAUNCHES, run=ncu, ncu="ncu")
    assert len(ncu.asked) == 2 and len(ncu.asked[0]) == len(ncu.asked[1]) + 1
    assert found[0].l2_sm_read_sectors is None and found[0].l2_sm_write_sectors == 1_234_014


ONCE = [(stage, DepthwiseConv1d(1, 4, 8, 4)) for stage in registry.stages("depthwise1d")]


@pytest.mark.parametrize("stage, problem", ONCE + LAUNCHES, ids=lambda one: getattr(one, "id", ""))
def test_one_launch_runs_the_stages_own_kernel_and_no_other(stage, problem, monkeypatch):
    def refused(*args):
        pytest.fail("ncu would count this launch too")

    monkeypatch.setattr(registry, "fill_zero", refused)
    monkeypatch.setattr(registry, "add_parts", refused)
    launched = []
    kernel = stage.kernel_for(problem)

    class Kernel:
        py_func = kernel.py_func

        def __getitem__(self, how):
            return lambda *args: (launched.append(how), kernel[how](*args))

    monkeypatch.setattr(type(stage), "kernel_for", lambda self, problem: Kernel())
    counters.launch_once(stage, problem)
    assert len(launched) == 1
