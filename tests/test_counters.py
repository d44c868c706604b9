"""The hardware's counters: what is asked of ncu, and how its answers and its refusals are read."""

import subprocess

import pytest

from dwlab import counters, problems, stages
from dwlab.counters import METRICS, CountersError
from dwlab.problems import PAPER, DepthwiseConv1d

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
TODO = stages.stages("depthwise1d", "forward")[:2]
SHAPES = (problems.SMALL, DepthwiseConv1d(2, 3, 31, 7, "same"))


def line(launch, metric, value, unit="sector"):
    return (
        f'"{launch}","41","python3","127.0.0.1","kernel","1","7","(8, 8, 8)","(6, 2, 1)","0","9.0",'
        f'"Command line profiler metrics","{metric}","{unit}","{value}"'
    )


def output(launches=4, skip=()):
    lines = ["==PROF== Connected to process 41", "==PROF== Profiling kernel: 0%....100%", HEAD]
    for launch in range(launches):
        for i, metric in enumerate(METRICS.values()):
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


def test_each_launch_belongs_to_its_stage_and_problem():
    ncu = Ncu(output())
    found = counters.measure(TODO, SHAPES, run=ncu, ncu="ncu")
    assert [(one.stage, one.problem["L"]) for one in found] == [
        ("naive", 48), ("coalesced", 48), ("naive", 31), ("coalesced", 31),
    ]  # fmt: skip
    assert [one.load_requests for one in found] == [1_234_000, 1_235_000, 1_236_000, 1_237_000]
    assert found[3].shared_bank_conflicts == 1_237_007
    assert found[2].predicted == TODO[0].traffic(SHAPES[1]).to_dict()


def test_clocks_are_left_alone_and_the_child_launches_what_was_asked():
    ncu = Ncu(output())
    counters.measure(TODO, SHAPES, run=ncu, ncu="ncu")
    command = ncu.command
    assert command[:3] == ["ncu", "--clock-control", "none"]
    assert command[command.index("-m") : command.index("-m") + 2] == ["-m", "dwlab.counters"]
    assert command.count("--stage") == 2 and "depthwise1d/forward/naive" in command
    assert "4,16,48,48,causal" in command and "2,3,31,7,same" in command
    assert ncu.environment["DWLAB_TARGET"] == "gpu"


def test_the_problems_that_the_child_is_told_are_read_back_as_they_were():
    for problem in (PAPER, DepthwiseConv1d(2, 3, 31, 7, "same"), DepthwiseConv1d(2, 3, 31, 7, 5)):
        text = ",".join(str(value) for value in (problem.B, problem.H, problem.L, problem.K, problem.padding))
        assert problems.problem(text) == problem


def test_without_ncu_it_says_where_it_comes_from(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CountersError, match="ncu is not on the PATH: it comes with the CUDA toolkit"):
        counters.measure(TODO, SHAPES)


def test_an_ncu_that_does_not_start_is_an_error():
    with pytest.raises(CountersError, match="ncu did not run: FileNotFoundError"):
        counters.measure(TODO, SHAPES, ncu="/nowhere/ncu")


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
        (Ncu(output(skip={(1, 2)})), "3 of 4 launches"),
        (Ncu(output(), "Traceback\nValueError: no", 1), "status 1 and 4 of 4 launches; it said: ValueError: no"),
        (Ncu(""), "0 of 4 launches; it said: no output"),
        (Ncu("no kernels were profiled"), "it said: no kernels were profiled"),
    ],
)
def test_an_answer_that_is_not_whole_is_not_used(ncu, message):
    with pytest.raises(CountersError, match=message):
        counters.measure(TODO, SHAPES, run=ncu, ncu="ncu")


def test_values_that_are_no_numbers_leave_a_launch_out():
    text = output(2).replace('"1,234,003"', '"n/a"')
    assert len(counters.parse(text)) == 1
    assert counters.parse("") == [] and counters.parse(HEAD) == []


def test_the_child_launches_each_stage_on_each_problem(monkeypatch):
    launched = []
    monkeypatch.setattr(counters, "launch_once", lambda stage, problem: launched.append((stage.name, problem.B)))
    arguments = ["--stage", "depthwise1d/forward/naive", "--stage", "depthwise1d/forward/shared"]
    assert counters.main([*arguments, "--problem", "small", "--problem", "2,3,31,7,same"]) == 0
    assert launched == [("naive", 4), ("shared", 4), ("naive", 2), ("shared", 2)]


def test_one_launch_runs_the_kernel():
    counters.launch_once(TODO[0], DepthwiseConv1d(1, 2, 5, 3))


def test_the_table_puts_the_formula_beside_the_hardware():
    found = counters.measure(TODO, SHAPES, run=Ncu(output()), ncu="ncu")
    text = counters.table(found)
    assert counters.table([one.to_dict() for one in found]) == text
    assert "1,234,001" in text and f"{TODO[0].traffic(SHAPES[0]).load_sectors:,}" in text
