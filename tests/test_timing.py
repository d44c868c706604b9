"""The timing protocol on a fake GPU with its own two clocks, host and device: the kernel's true time must come back."""

import itertools
import math

import pytest
from fakes import FakeGpu

from dwlab.gpu import target
from dwlab.measure import timing
from dwlab.measure.timing import TimingError, time_launches


def launch(gpu):
    gpu.enqueue()


@pytest.mark.parametrize("kernel_us", [1.5, 3, 12, 39, 41, 60, 244, 2_771, 8_884, 250_000])
def test_a_kernels_time_comes_back_whatever_the_hosts_launches_cost(kernel_us):
    timed = time_launches(launch, clock=FakeGpu(kernel_us))
    assert timed.median_us == pytest.approx(kernel_us, rel=0.01)
    assert timed.p10_us <= timed.median_us <= timed.p90_us
    assert timed.note == ""


@pytest.mark.parametrize("kernel_us, method", [(3, "graph"), (499, "graph"), (501, "events"), (500, "events")])
def test_short_kernels_are_timed_in_a_graph(kernel_us, method):
    assert time_launches(launch, clock=FakeGpu(kernel_us)).method == method


def test_without_graphs_a_short_kernel_is_timed_by_events_and_says_so():
    timed = time_launches(launch, clock=FakeGpu(3, graphs=False))
    assert timed.method == "events"
    assert "without a graph" in timed.note and "this fake has none" in timed.note
    assert timed.median_us == pytest.approx(20, rel=0.01)  # the host's time, which is why the note is there


def test_median_and_percentiles_are_those_of_the_rounds_without_compilation_or_one_slow_round():
    gpu = FakeGpu(lambda run: 900_000 if run == 0 else 100)
    timed = time_launches(launch, clock=gpu)
    assert timed.p90_us == pytest.approx(100)
    slow = FakeGpu(lambda run: 50_000 if run == 20 else 10_000)
    assert time_launches(launch, rounds=15, min_seconds=0.0, clock=slow).median_us == pytest.approx(10_000)
    # Rounds of one 10 ms kernel each: its duration cycles, so the rounds' times are known.
    gpu = FakeGpu(lambda run: 10_000 + 100 * (run % 11))
    timed = time_launches(launch, rounds=11, min_seconds=0.0, clock=gpu)
    assert timed.launches == 1 and timed.rounds == 11
    assert 10_000 <= timed.p10_us < timed.median_us < timed.p90_us <= 11_000
    assert timed.spread == pytest.approx((timed.p90_us - timed.p10_us) / timed.median_us)


def test_each_function_of_a_sequence_is_warmed_up_and_launched_equally_often():
    gpu = FakeGpu(100)
    names = ["a", "b", "c", "d", "e"]
    functions = [lambda g, name=name: g.enqueue(name) for name in names]
    time_launches(functions, clock=gpu)
    assert gpu.launched[:5] == names
    # In turn, without a break, over warm-up, pilot and all rounds: no set of buffers is used twice in a row.
    expected = itertools.cycle(names)
    assert all(name == next(expected) for name in gpu.launched)


@pytest.mark.parametrize("disturbed, turns", [(0, 1), (8, 2), (10**9, timing.ATTEMPTS)])
def test_rounds_that_something_disturbed_are_measured_again(disturbed, turns):
    class Busy(FakeGpu):
        rounds = 0

        def elapsed_us(self, before, body):
            self.rounds += 1
            late = self.rounds % 7 if self.rounds <= disturbed else 0
            return (1 + late) * super().elapsed_us(before, body)

    gpu = Busy(1_000)
    timed = time_launches(launch, rounds=10, min_seconds=0.0, clock=gpu)
    assert 10 * turns < gpu.rounds < 10 * turns + 10  # and a few of the first estimate
    if turns < timing.ATTEMPTS:
        assert timed.median_us == pytest.approx(1_000) and timed.spread < timing.CALM
    else:
        assert timed.spread > timing.CALM  # and says so


@pytest.mark.parametrize("kernel_us", [3, 5, 700])
def test_a_first_estimate_of_a_busy_host_does_not_make_rounds_that_its_next_waits_fill(kernel_us):
    """As 16 processes that compile beside it do: 4 ms without the host at most events, the first estimate's among them.

    Rounds as long as those it would lead to, of one graph, took 100 µs a launch where the kernel takes 5.
    """

    class Preempted(FakeGpu):
        events = 0

        def elapsed_us(self, before, body):
            self.events += 1
            if self.events % 3 == 0:
                return super().elapsed_us(before, body)

            def late():
                self.host = max(self.host, self.device) + 4_000
                body()

            return super().elapsed_us(before, late)

    timed = time_launches(launch, rounds=3, min_seconds=0.03, clock=Preempted(kernel_us))
    assert timed.median_us == pytest.approx(kernel_us, rel=0.6)  # 4 ms in 10 ms
    assert timed.launches * kernel_us >= 9_000


def test_the_measured_time_is_at_least_what_was_asked_for():
    timed = time_launches(launch, rounds=10, min_seconds=0.5, clock=FakeGpu(300))
    assert timed.rounds * timed.launches * timed.median_us >= 0.5e6


@pytest.mark.parametrize(
    "told, says", [(0.0, "another stream"), (math.nan, "events"), (math.inf, "events"), (-3.0, "events")]
)
def test_launches_on_another_stream_and_events_that_make_no_sense_are_errors(monkeypatch, told, says):
    monkeypatch.setattr(FakeGpu, "elapsed_us", lambda *given: told)
    with pytest.raises(TimingError, match=says):
        time_launches(launch, clock=FakeGpu(50))


def test_too_few_rounds_and_nothing_to_time_are_errors():
    with pytest.raises(TimingError, match="rounds=2"):
        time_launches(launch, rounds=2, clock=FakeGpu(50))
    with pytest.raises(TimingError, match="empty"):
        time_launches([], clock=FakeGpu(50))


@pytest.mark.skipif(target.mode == "gpu", reason="what simulated mode answers")
def test_simulated_mode_has_no_time_and_says_where_times_are():
    launches = []
    with pytest.raises(TimingError, match=r"simulated mode.*python -m dwlab records"):
        time_launches(launches.append)
    assert launches == []


def test_sets_of_buffers_exceed_the_cache_and_its_state_is_said_as_it_is():
    l2 = 60_000_000
    assert timing.sets_for(805_000_000, l2) == 1
    assert timing.sets_for(10_000_000, l2) * 10_000_000 >= 3 * l2
    assert timing.sets_for(1, l2) == timing.MAX_SETS
    assert timing.sets_for(100, 0) == 1
    with pytest.raises(TimingError, match="0 bytes"):
        timing.sets_for(0, l2)
    assert timing.cache_state(805_000_000, l2) == "cold: 805.0 MB, 13.4 times the L2"
    assert timing.cache_state(10_000_000, l2, 18) == "cold: 180.0 MB in 18 sets, 3.0 times the L2"
    assert timing.cache_state(1_000_000, l2).startswith("warm: 1.0 MB, 0.02 times")
    assert timing.cache_state(119_999_999, l2).startswith("warm")
    assert timing.cache_state(120_000_000, l2).startswith("cold")


@pytest.mark.parametrize("kernel_us, rounds", [(96_000.0, 5), (400_000.0, 3), (500.0, 15)])
def test_a_slow_kernel_is_measured_in_fewer_rounds(kernel_us, rounds):
    timed = time_launches(lambda gpu: gpu.enqueue(), clock=FakeGpu(kernel_us), min_seconds=0.2, most_seconds=1.0)
    assert timed.rounds == rounds
    assert timed.median_us == pytest.approx(kernel_us, rel=0.01)
