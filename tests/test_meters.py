"""The meter windows: real files as they are, and odd files made here."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from dwlab.training import meters
from dwlab.training.meters import Hourly, MeterError, Series, hourly, read_series, repair_exchanged_days, windows


def write(tmp_path: Path, text: str, name: str = "meter.csv") -> Path:
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def series(start: str, values, minutes: int = 30) -> Series:
    times = np.datetime64(start, "m") + np.arange(len(values)) * np.timedelta64(minutes, "m")
    return Series("meter", times, np.asarray(values, dtype=float))


def hours_of(start: str, values) -> Hourly:
    return Hourly("meter", np.datetime64(start, "h"), np.asarray(values, dtype=float))


def test_shipped_windows_have_the_documented_shapes_and_units_and_are_those_of_the_file():
    shipped = meters.load_windows()
    n = len(shipped)
    assert n > 1500
    assert shipped.features.shape == (n, 4, 48) and shipped.features.dtype == np.float32
    assert shipped.load.shape == (n, 48) and shipped.load.dtype == np.float32
    assert shipped.start.shape == (n,) and shipped.meter.shape == (n,)
    assert set(shipped.meter) == {0, 1, 2} and shipped.names == ("meter 0", "meter 1", "meter 2")
    assert np.isfinite(shipped.features).all() and np.isfinite(shipped.load).all()
    hour, day, warm, past = shipped.features.transpose(1, 0, 2)
    assert set(np.unique(hour)) == set(range(24)) and set(np.unique(day)) == set(range(7))
    assert -10 < warm.min() < 0 and 30 < warm.max() < 40
    assert past.min() >= 0
    # past load is the load one hour earlier
    assert np.array_equal(past[:, 1:], shipped.load[:, :-1])
    hours = shipped.start[:, None] + np.arange(48)
    assert np.array_equal(hour, hours.astype(int) % 24)
    assert np.array_equal(day, [[d.weekday() for d in row] for row in hours.astype("datetime64[s]").astype(object)])
    raw = gzip.decompress((meters.DATA / meters.METERS[0][0]).read_bytes()).decode().splitlines()
    values = {line.split(",")[0][:13]: float(line.split(",")[1]) for line in raw[1:]}
    i = 321
    for h in range(48):
        key = str(shipped.start[i] + np.timedelta64(h, "h")).replace("T", " ")
        assert shipped.load[i, h] == np.float32(values[key])


def breaks(times):
    return int((np.diff(times) > np.timedelta64(1, "D")).sum())


def test_the_notes_beside_the_data_are_true():
    first = [read_series(meters.DATA / m[0], name=f"meter {i}") for i, m in enumerate(meters.METERS)]
    assert [len(s.times) for s in first] == [23508, 22536, 35468]
    assert [breaks(s.times) for s in first] == [0, 1, 23]
    repaired = repair_exchanged_days(first[2])
    assert (str(repaired.times[0]), str(repaired.times[-1])) == ("2012-02-20T13:00", "2014-02-28T00:00")
    assert breaks(repaired.times) == 0
    assert [len(s.times) - len(np.unique(s.times)) for s in first] == [0, 15, 24]
    assert int((np.diff(repaired.times) == np.timedelta64(60, "m")).sum()) == 3
    for sound in first[:2]:
        assert repair_exchanged_days(sound) is sound
    notice = (meters.DATA / "README.md").read_text(encoding="utf-8")
    assert "23 breaks" in notice and "Apache License 2.0" in notice
    assert (meters.DATA / "LICENSE-Apache-2.0.txt").exists()
    for file in {f for pair in meters.METERS for f in pair}:
        assert file in notice


def test_unknown_meter_is_refused():
    for bad in ((3,), (-1,), ()):
        with pytest.raises(ValueError, match="0 to 2"):
            meters.load_windows(bad)


def test_offsets_blanks_and_other_columns(tmp_path):
    rows = "0,2020-04-01 01:00:00+01:00,kWh,1.5", "1,2020-04-01 01:00:00+00:00,kWh,\n", "2,2020-04-01T02:00Z,kWh,inf"
    got = read_series(write(tmp_path, "\n".join([",start,unit,value", *rows, ""])))
    assert [str(t) for t in got.times] == ["2020-04-01T00:00", "2020-04-01T01:00", "2020-04-01T02:00"]
    assert got.values[0] == 1.5 and np.isnan(got.values[1:]).all()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no time column among"),
        ("when,value\n2020-01-01,1\n", "no time column among \\['when', 'value'\\]: call one.*start"),
        ("start,value,kWh\n2020-01-01,1,1\n", "2 value columns among"),
        ("start,value\n", "no rows"),
        ("start,value\n2020-01-01 00:00,1\nyesterday,1\n", "line 3: 'yesterday' is not an ISO time stamp"),
        ("start,value\n2020-01-01 00:00:30,1\n", "not on a whole minute"),
        ("start,value\n2020-01-01 00:00\n", "line 2: 1 columns"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path, text, says):
    with pytest.raises(MeterError, match=says):
        read_series(write(tmp_path, text))


def test_missing_truncated_and_false_archives(tmp_path):
    with pytest.raises(MeterError, match="not there"):
        read_series(tmp_path / "none.csv")
    whole = write(tmp_path, "start,value\n" + "2020-01-01 00:00,1\n" * 5000, "meter.csv.gz")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(MeterError, match="damaged or cut short"):
        read_series(cut)
    false = tmp_path / "false.csv.gz"
    false.write_text("start,value\n")
    with pytest.raises(MeterError, match="damaged or cut short"):
        read_series(false)
    long = write(tmp_path, "start,value\n" + "1" * 200_000 + ",1\n")
    with pytest.raises(MeterError, match="damaged or cut short .*field"):
        read_series(long)


@pytest.mark.parametrize("place", ["", "/dev/zero"])
def test_what_is_no_file_is_not_read(tmp_path, place):
    """A device may never end."""
    if not (tmp_path / place).exists():
        pytest.skip(f"this system has no {place}")
    with pytest.raises(MeterError, match="cannot be read: it is no file"):
        read_series(tmp_path / place)


def test_half_hours_add_up_temperatures_average_and_repeated_rows_count_once_or_are_gaps():
    halves = series("2020-01-01T00:00", [1, 2, 3, 4])
    assert hourly(halves, "sum").values.tolist() == [3, 7]
    assert hourly(halves, "mean").values.tolist() == [1.5, 3.5]
    assert hourly(series("2020-01-01T00:00", np.ones(8), minutes=15), "sum").values.tolist() == [4, 4]
    assert hourly(series("2020-01-01T05:00", [7, 8], minutes=60), "sum").start == np.datetime64("2020-01-01T05")
    got = hourly(series("2020-01-01T00:30", [1, 2, 3, 4]), "sum").values
    assert np.isnan(got[0]) and got[1] == 5 and np.isnan(got[2])  # half an hour is not an hour
    times = np.array([f"2020-01-01T{hour:02}:00" for hour in (0, 0, 1, 2, 2)], "datetime64[m]")
    got = hourly(Series("m", times, np.array([1.0, 1, 2, 3, 4])), "sum")
    assert got.values[:2].tolist() == [1, 2] and np.isnan(got.values[2])
    for says in ("2 repeated rows", "1 stamps with two different values"):
        assert any(says in n for n in got.repaired)
    twice_nothing = hourly(Series("m", times[:3], np.array([np.nan, np.nan, 2])), "sum")
    assert not any("different" in n for n in twice_nothing.repaired)


def test_steps_that_do_not_fit_the_hour_are_refused():
    with pytest.raises(MeterError, match="every 7 minutes"):
        hourly(series("2020-01-01T00:00", np.ones(20), minutes=7), "sum")
    with pytest.raises(MeterError, match="every 1440 minutes"):
        hourly(series("2020-01-01T00:00", np.ones(20), minutes=1440), "sum")
    crooked = series("2020-01-01T00:00", np.ones(20))
    times = crooked.times.copy()
    times[7] += np.timedelta64(3, "m")
    with pytest.raises(MeterError, match="03:33 is not a multiple of 30 minutes"):
        hourly(Series("m", times, crooked.values), "sum")


def test_only_zeros_before_the_first_reading_are_gaps():
    got = meters.without_leading_zeros(series("2020-01-01T00:00", [0, 0, 1, 0, 0]))
    assert np.isnan(got.values[:2]).all() and got.values[2:].tolist() == [1, 0, 0]
    assert np.isnan(meters.without_leading_zeros(series("2020-01-01T00:00", np.zeros(4))).values).all()
    used = series("2020-01-01T00:00", [1.0, 0])
    assert meters.without_leading_zeros(used) is used
    assert np.isnan(meters.without_leading_zeros(series("2020-01-01T00:00", [np.nan, 0, 2])).values[:2]).all()


def test_exchanged_days_are_mended_only_when_that_closes_gaps():
    true = series("2013-01-01T00:00", range(24 * 200), minutes=60)
    days = true.times.astype("datetime64[D]").astype(object)
    wrong = np.array([d.replace(day=d.month, month=d.day) if d.day <= 12 else d for d in days], "datetime64[D]")
    times = wrong + (true.times - true.times.astype("datetime64[D]"))
    order = np.argsort(times, kind="stable")
    repaired = repair_exchanged_days(Series("m", times[order], true.values[order]))
    assert np.array_equal(repaired.times, true.times) and np.array_equal(repaired.values, true.values)
    assert repair_exchanged_days(true) is true
    one = series("2013-05-04T00:00", [1.0])
    assert repair_exchanged_days(one) is one


def test_windows_need_a_past_skip_gaps_and_lie_where_temperatures_are():
    load = np.arange(200.0)
    load[100] = np.nan
    got = windows(hours_of("2020-01-01T00", load), hours_of("2020-01-01T00", np.zeros(200)), hours=10, stride=10)
    assert got.load[0].tolist() == list(range(1, 11)) and got.features[0, 3].tolist() == list(range(10))
    # hour 100 is the last of the window from 91, and the past of the one from 101
    firsts = [int(w[0]) for w in got.load]
    assert 91 not in firsts and 101 not in firsts and {81, 111} <= set(firsts)
    assert got.left_out == {"no temperature": 0, "gap in the load": 2, "both": 0}
    load = hours_of("2020-01-01T00", np.ones(100))
    warm = hours_of("2020-01-02T00", np.arange(30.0))
    got = windows(load, warm, hours=5, stride=1)
    assert str(got.start[0]) == "2020-01-02T00" and got.features[0, 2].tolist() == [0, 1, 2, 3, 4]
    assert got.features[-1, 2, -1] == 29 and len(got) == 26
    assert got.left_out["no temperature"] == 95 - 26
