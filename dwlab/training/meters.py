"""Building-meter windows: the input of S4ConvD, from real meter readings.

A window is 48 hours of four features, one row each: hour of day, day of week, outdoor temperature, and past load (the
load of the hour before). `load_windows()` gives them for the three meters in `dwlab/training/data`; `read_series`,
`hourly` and `windows` are the steps behind it and take files of your own. Odd data never passes in silence: what can be
repaired is repaired and counted, what cannot becomes a gap, and a window with a gap in it is left out and counted.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import TextIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

FEATURES = ("hour of day", "day of week", "temperature", "past load")
HOURS = 48
DATA = Path(__file__).parent / "data"
# (meter file, temperature file) of each shipped meter; the licence notice is dwlab/training/data/README.md
METERS = (
    ("uk-electricity-hdd-only-hourly-sample-0.csv.gz", "uk-tempC-sample-0.csv.gz"),
    ("uk-electricity-hdd-only-hourly-sample-1.csv.gz", "uk-tempC-sample-1_2.csv.gz"),
    ("uk-electricity-hdd-only-hourly-sample-2.csv.gz", "uk-tempC-sample-1_2.csv.gz"),
)
# What a file of one's own may call its columns.
TIME_COLUMNS = ("start", "dt", "time", "timestamp", "datetime", "date")
VALUE_COLUMNS = ("value", "kwh", "tempc", "load", "temperature", "meter_reading", "air_temperature")
_HOUR = np.timedelta64(1, "h")
_MINUTE = np.timedelta64(1, "m")


class MeterError(ValueError):
    """A meter file that cannot be read: says which file, which line, and what to do."""


@dataclass(frozen=True)
class Series:
    """Readings as they stand in a file, sorted by time.

    `times` (n,) datetime64[m] in UTC, the start of each interval; `values` (n,) float64, NaN where the file has none;
    `repaired` lists the repairs in words.
    """

    name: str
    times: np.ndarray
    values: np.ndarray
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hourly:
    """One value an hour without a break: hour i starts at `start` + i (UTC). `values` (n,) float64, NaN if unknown."""

    name: str
    start: np.datetime64
    values: np.ndarray
    repaired: tuple[str, ...] = ()

    @property
    def times(self) -> np.ndarray:
        """(n,) datetime64[h], the start of each hour in UTC."""
        return self.start + np.arange(len(self.values)) * _HOUR


@dataclass(frozen=True)
class Windows:
    """B windows of 48 hours.

    `features` (B, 4, hours) float32 in the order of FEATURES, in their own units (hour 0..23, Monday 0..6, °C, kWh);
    `load` (B, hours) float32, kWh in each hour, what S4ConvD predicts; `start` (B,) datetime64[h] in UTC;
    `meter` (B,) int, an index into `names`; `left_out` counts windows that were not made, by reason; `repaired` as in
    Series.
    """

    features: np.ndarray
    load: np.ndarray
    start: np.ndarray
    meter: np.ndarray
    names: tuple[str, ...]
    left_out: dict[str, int] = field(default_factory=dict)
    repaired: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.load)

    def standardised(self) -> np.ndarray:
        """(B, 4, hours) float32: each feature less its mean, over its standard deviation; a constant one becomes 0."""
        x = self.features.astype(np.float64)
        x -= x.mean(axis=(0, 2), keepdims=True)
        deviation = x.std(axis=(0, 2), keepdims=True)
        return (x / np.where(deviation > 0, deviation, 1)).astype(np.float32)


def project(features: np.ndarray, channels: int, seed: int = 0) -> np.ndarray:
    """Mix F features into H channels: x (B, channels, hours) float32 from features (B, F, hours).

    S4ConvD's input layer is such a matrix, learned; here it is drawn once from `seed`, uniform in ±1/sqrt(F), so that x
    has the statistics of real windows without training anything.
    """
    features = np.asarray(features)
    if features.ndim != 3 or 0 in features.shape:
        raise ValueError(f"features must be (B, F, hours), none of them 0, but the shape is {features.shape}")
    if channels < 1:
        raise ValueError(f"channels must be 1 or more, not {channels}")
    bound = 1 / np.sqrt(features.shape[1])
    mix = np.random.default_rng(seed).uniform(-bound, bound, (channels, features.shape[1]))
    return np.ascontiguousarray(np.einsum("hf,bft->bht", mix, features.astype(np.float64)), dtype=np.float32)


def load_windows(
    meters: tuple[int, ...] = (0, 1, 2), hours: int = HOURS, stride: int = 24, zone: str = "UTC"
) -> Windows:
    """The windows of the shipped meters, one after the other; `zone` is the clock of the hour and day features.

    Raises ValueError for meters that are not there, and MeterError as ``windows`` does.
    """
    chosen = meters if isinstance(meters, (tuple, list)) else ()
    if not chosen or any(m not in range(len(METERS)) for m in chosen):
        raise ValueError(f"meters must be a tuple of some of 0 to {len(METERS) - 1}, such as (0,), not {meters!r}")
    parts = []
    for m in meters:
        load_file, temperature_file = METERS[m]
        load = hourly(
            without_leading_zeros(repair_exchanged_days(read_series(DATA / load_file, name=f"meter {m}"))), "sum"
        )
        temperature = hourly(read_series(DATA / temperature_file, time="dt", value="tempC"), "mean")
        parts.append(windows(load, temperature, hours=hours, stride=stride, zone=zone))
    reasons = dict.fromkeys(reason for part in parts for reason in part.left_out)
    return Windows(
        features=np.concatenate([p.features for p in parts]),
        load=np.concatenate([p.load for p in parts]),
        start=np.concatenate([p.start for p in parts]),
        meter=np.concatenate([np.full(len(p), i) for i, p in enumerate(parts)]),
        names=tuple(p.names[0] for p in parts),
        left_out={reason: sum(p.left_out.get(reason, 0) for p in parts) for reason in reasons},
        repaired=tuple(text for p in parts for text in p.repaired),
    )


def read_series(
    path: str | Path, time: str = "start", value: str = "value", name: str = "", zone: str = "UTC"
) -> Series:
    """Read one CSV file, plain or gzipped: a column of ISO time stamps and one of numbers; other columns are ignored.

    A stamp with an offset is taken at its word. One without is a wall clock of `zone`; where that clock shows an hour
    twice, the second row of that stamp is the second hour (the first, in a file that begins with its newest row). An
    empty, non-numeric or infinite value is a gap. Raises MeterError with file and line.
    """
    path = Path(path)
    name = name or path.name.split(".")[0]
    wall = _zone(zone)
    stamps, values, places = [], [], []
    with _opened(path) as file:
        rows = csv.reader(file)
        header = [h.strip() for h in next(rows, [])]
        missing = [c for c in (time, value) if c not in header]
        if missing:
            raise MeterError(f"{path.name} has no column {missing[0]!r}; its columns are {header}")
        i, j = header.index(time), header.index(value)
        for row in rows:
            if not row:
                continue
            if len(row) <= max(i, j):
                raise MeterError(
                    f"{path.name}, line {rows.line_num}: {len(row)} columns where the header has {len(header)}"
                )
            places.append(f"{path.name}, line {rows.line_num}")
            stamps.append(_stamp(row[i], places[-1]))
            values.append(_number(row[j]))
    if not stamps:
        raise MeterError(f"{path.name} has a header and no rows")
    if _newest_first(stamps):
        stamps, values, places = stamps[::-1], values[::-1], places[::-1]
    seen: set[datetime] = set()
    times = np.array([_utc(s, wall, seen, where) for s, where in zip(stamps, places, strict=True)], "datetime64[m]")
    order = np.argsort(times, kind="stable")
    return Series(name, times[order], np.array(values)[order])


def columns_of(path: str | Path) -> tuple[str, str]:
    """The time and the value column of a file that calls them by one of the usual names (TIME_COLUMNS, VALUE_COLUMNS).

    Raises MeterError where it has none of them, or more than one, and names its columns.
    """
    path = Path(path)
    with _opened(path) as file:
        header = [h.strip() for h in next(csv.reader(file), [])]
    found = []
    for what, names in (("time", TIME_COLUMNS), ("value", VALUE_COLUMNS)):
        there = [h for h in header if h.lower() in names]
        if len(there) != 1:
            raise MeterError(
                f"{path.name} has {len(there) or 'no'} {what} column{'s' * (len(there) > 1)} among {header}: call one, "
                f"and only one, {', '.join(names)}"
            )
        found += there
    return found[0], found[1]


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """The file's text. What goes wrong while it is read becomes a MeterError with the file's name."""
    if path.exists() and not path.is_file():  # a folder; or a device, which may never end
        raise MeterError(f"{path.name or path} cannot be read: it is no file")
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except FileNotFoundError:
        raise MeterError(f"{path.name} is not there: looked in {path.parent}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError, csv.Error) as error:
        raise MeterError(f"{path.name} is damaged or cut short ({error}): fetch it again") from None
    except OSError as error:
        raise MeterError(f"{path.name or path} cannot be read: {(error.strerror or str(error)).lower()}") from None


def repair_exchanged_days(series: Series) -> Series:
    """Undo a reader that took 12/02 for 2 December: exchange day and month of every stamp whose day is 12 or less.

    Done only if it closes gaps: if the stamps then have fewer breaks longer than a day than before. A sound series
    stays as it is.
    """
    days = series.times.astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    day = (days - months).astype(int)
    month = months.astype(int) % 12
    january = months - month.astype("timedelta64[M]")
    exchanged = (january + day.astype("timedelta64[M]")).astype("datetime64[D]") + month.astype("timedelta64[D]")
    repaired = np.where(day < 12, exchanged + (series.times - days), series.times)
    order = np.argsort(repaired, kind="stable")
    before, after = _breaks(series.times), _breaks(repaired[order])
    if after >= before:
        return series
    note = (
        f"{series.name}: day and month exchanged back where the day is 12 or less; "
        f"breaks of over a day: {before} before, {after} after"
    )
    return Series(series.name, repaired[order], series.values[order], (*series.repaired, note))


def without_leading_zeros(series: Series) -> Series:
    """Turn zeros before the first other reading into gaps: a meter not yet in use, not a house that used nothing."""
    used = np.flatnonzero(np.nan_to_num(series.values) != 0)
    first = int(used[0]) if len(used) else len(series.values)
    zeros = int(np.count_nonzero(series.values[:first] == 0))
    if not zeros:
        return series
    values = series.values.copy()
    values[:first] = np.nan
    return Series(
        series.name, series.times, values, (*series.repaired, f"{series.name}: {zeros} zeros before the first reading")
    )


def hourly(series: Series, how: str) -> Hourly:
    """Put a series on a grid of whole hours: `how="sum"` for energy, `"mean"` for temperature.

    The interval is the most frequent step (it must divide the hour). An hour that lacks one of its intervals is a gap:
    half an hour's energy is not an hour's. Rows that repeat a stamp with the same value count once; with different
    values, nobody knows, so a gap.
    """
    if how not in ("sum", "mean"):
        raise ValueError(f'how must be "sum" or "mean", not {how!r}')
    times, values = series.times, series.values
    notes = list(series.repaired)
    steps = np.diff(times)
    steps = (steps[steps > np.timedelta64(0, "m")] // _MINUTE).astype(int)
    step = int(np.bincount(steps).argmax()) if len(steps) else 60
    if step > 60 or 60 % step:
        raise MeterError(
            f"{series.name}: a reading every {step} minutes; the interval must divide the hour (60, 30, 20, 15, ...)"
        )
    start = times[0].astype("datetime64[h]")
    minutes = ((times - start.astype("datetime64[m]")) // _MINUTE).astype(int)
    off = np.flatnonzero(minutes % step)
    if len(off):
        raise MeterError(
            f"{series.name}: {times[off[0]]} is not a multiple of {step} minutes after the hour, as most readings are"
        )
    slot = minutes // step
    unique, first, inverse = np.unique(slot, return_index=True, return_inverse=True)
    same = (values == values[first][inverse]) | (np.isnan(values) & np.isnan(values[first][inverse]))
    repeated = len(slot) - len(unique)
    if repeated:
        notes.append(f"{series.name}: {repeated} repeated rows counted once")
    doubtful = np.unique(inverse[~same])
    if len(doubtful):
        notes.append(f"{series.name}: {len(doubtful)} stamps with two different values taken as gaps")
    per_hour = 60 // step
    grid = np.full((int(slot[-1]) // per_hour + 1, per_hour), np.nan)
    kept = values[first].copy()
    kept[doubtful] = np.nan
    grid.reshape(-1)[unique] = kept
    return Hourly(series.name, start, grid.sum(axis=1) if how == "sum" else grid.mean(axis=1), tuple(notes))


def windows(load: Hourly, temperature: Hourly, hours: int = HOURS, stride: int = 24, zone: str = "UTC") -> Windows:
    """Cut windows of `hours` hours, a new one every `stride` hours, wherever load and temperature are both known
    throughout.

    The first hour of the load has no past, so the earliest window starts an hour after it. `zone` is the clock of the
    hour and day features: people live by the wall clock, so "Europe/London" puts breakfast at the same hour in summer
    and winter.
    """
    if hours < 1 or stride < 1:
        raise ValueError(f"hours and stride must be 1 or more, not {hours} and {stride}")
    count = max(0, (len(load.values) - 1 - hours) // stride + 1)
    first = 1 + stride * np.arange(count)
    rows = first[:, None] + np.arange(hours)
    # temperature at each hour of the load, NaN before its series starts and after it ends
    at = np.arange(len(load.values)) + int((load.start - temperature.start) // _HOUR)
    inside = (at >= 0) & (at < len(temperature.values))
    warm = np.where(inside, temperature.values[np.clip(at, 0, len(temperature.values) - 1)], np.nan)
    lacks_load = np.isnan(load.values)[rows].any(axis=1) | np.isnan(load.values[first - 1])
    lacks_warm = np.isnan(warm)[rows].any(axis=1)
    kept = rows[~lacks_load & ~lacks_warm]
    hour, day = _clock(load.times, zone)
    features = np.stack([hour[kept], day[kept], warm[kept], load.values[kept - 1]], axis=1).astype(np.float32)
    return Windows(
        features=features.reshape(-1, len(FEATURES), hours),
        load=load.values[kept].astype(np.float32).reshape(-1, hours),
        start=load.times[kept[:, 0]],
        meter=np.zeros(len(kept), dtype=int),
        names=(load.name,),
        left_out={
            "no temperature": int(np.count_nonzero(lacks_warm & ~lacks_load)),
            "gap in the load": int(np.count_nonzero(lacks_load & ~lacks_warm)),
            "both": int(np.count_nonzero(lacks_load & lacks_warm)),
        },
        repaired=(*load.repaired, *temperature.repaired),
    )


def _breaks(times: np.ndarray) -> int:
    return int(np.count_nonzero(np.diff(times) > np.timedelta64(1, "D")))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return np.nan
    return number if np.isfinite(number) else np.nan


def _zone(name: str) -> ZoneInfo | tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise MeterError(
            f"no time zone {name!r}: use a name such as 'Europe/London'; "
            "where the system has no time zone data (Windows), pip install tzdata"
        ) from None


def _stamp(text: str, where: str) -> datetime:
    """The time stamp as it is written, on a whole minute."""
    try:
        stamp = datetime.fromisoformat(text.strip())
    except ValueError:
        raise MeterError(f"{where}: {text!r} is not an ISO time stamp such as 2020-04-01 01:00:00+00:00") from None
    if stamp.second or stamp.microsecond:
        raise MeterError(f"{where}: {text!r} is not on a whole minute")
    return stamp


def _newest_first(stamps: list[datetime]) -> bool:
    """Whether a file's rows go back in time, by most of its steps; the clocks' change turns a few of them round."""
    steps = [b - a for a, b in pairwise(s.replace(tzinfo=None) for s in stamps)]
    return sum(step < timedelta(0) for step in steps) > sum(step > timedelta(0) for step in steps)


def _utc(stamp: datetime, wall: ZoneInfo | tzinfo, seen: set[datetime], where: str) -> datetime:
    """The stamp as a naive UTC datetime; `seen` holds the wall-clock stamps of the rows before it in time."""
    if stamp.tzinfo is None:
        first = stamp.replace(tzinfo=wall)
        if wall is not UTC:
            if stamp in seen and first.replace(fold=1).utcoffset() != first.utcoffset():
                first = first.replace(fold=1)
            seen.add(stamp)
            if first.astimezone(UTC).astimezone(wall).replace(tzinfo=None) != stamp:
                raise MeterError(
                    f"{where}: '{stamp}' does not exist in {wall.key}: the clock jumps over it; are the stamps UTC?"
                )
        stamp = first
    return stamp.astimezone(UTC).replace(tzinfo=None)


def _clock(times: np.ndarray, zone: str) -> tuple[np.ndarray, np.ndarray]:
    """Hour of day 0..23 and day of week 0 (Monday)..6 of each UTC hour, on the clock of `zone`."""
    wall = _zone(zone)
    if wall is not UTC:
        naive = times.astype("datetime64[s]").astype(datetime)
        offset = [t.replace(tzinfo=UTC).astimezone(wall).utcoffset() // timedelta(minutes=1) for t in naive]
        times = times.astype("datetime64[m]") + np.array(offset, dtype=int).astype("timedelta64[m]")
    hours = times.astype("datetime64[h]").astype(int)
    return hours % 24, (hours // 24 + 3) % 7  # 1970-01-01 was a Thursday
