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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

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
# What a file may call its columns.
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
    bound = 1 / np.sqrt(features.shape[1])
    mix = np.random.default_rng(seed).uniform(-bound, bound, (channels, features.shape[1]))
    return np.ascontiguousarray(np.einsum("hf,bft->bht", mix, features.astype(np.float64)), dtype=np.float32)


def load_windows(meters: tuple[int, ...] = (0, 1, 2), hours: int = HOURS, stride: int = 24) -> Windows:
    """The windows of the shipped meters, one after the other. Raises ValueError for meters that are not there."""
    if not meters or any(m not in range(len(METERS)) for m in meters):
        raise ValueError(f"meters must be a tuple of some of 0 to {len(METERS) - 1}, such as (0,), not {meters!r}")
    parts = [
        windows_of(*(DATA / file for file in METERS[m]), hours=hours, stride=stride, name=f"meter {m}") for m in meters
    ]
    return Windows(
        features=np.concatenate([p.features for p in parts]),
        load=np.concatenate([p.load for p in parts]),
        start=np.concatenate([p.start for p in parts]),
        meter=np.concatenate([np.full(len(p), i) for i, p in enumerate(parts)]),
        names=tuple(p.names[0] for p in parts),
        left_out={reason: sum(p.left_out[reason] for p in parts) for reason in parts[0].left_out},
        repaired=tuple(text for p in parts for text in p.repaired),
    )


def windows_of(
    load: str | Path, temperature: str | Path, hours: int = HOURS, stride: int = 24, name: str = ""
) -> Windows:
    """The windows of one meter's two files, repaired where that can be; see `read_series` and `windows`."""
    series = without_leading_zeros(repair_exchanged_days(read_series(load, name)))
    return windows(hourly(series, "sum"), hourly(read_series(temperature), "mean"), hours, stride)


def read_series(path: str | Path, name: str = "") -> Series:
    """Read one CSV file, plain or gzipped: a column of ISO time stamps and one of numbers; other columns are ignored.

    The columns are found by the usual names (TIME_COLUMNS, VALUE_COLUMNS). A stamp without an offset is UTC. An empty,
    non-numeric or infinite value is a gap. Raises MeterError with file and line.
    """
    path = Path(path)
    if not path.is_file():  # a folder; or a device, which may never end
        why = "cannot be read: it is no file" if path.exists() else f"is not there: looked in {path.parent}"
        raise MeterError(f"{path.name or path} {why}")
    times, values = [], []
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            header = [title.strip() for title in next(rows, [])]
            time, value = (_column(header, what, path) for what in ("time", "value"))
            for row in filter(None, rows):
                where = f"{path.name}, line {rows.line_num}"
                if len(row) <= max(time, value):
                    raise MeterError(f"{where}: {len(row)} columns where the header has {len(header)}")
                times.append(_stamp(row[time], where))
                values.append(_number(row[value]))
    except (EOFError, zlib.error, OSError, UnicodeDecodeError, csv.Error) as error:
        raise MeterError(f"{path.name} is damaged or cut short ({error}): fetch it again") from None
    if not times:
        raise MeterError(f"{path.name} has a header and no rows")
    found = np.array(times, "datetime64[m]")
    order = np.argsort(found, kind="stable")
    return Series(name or path.name.split(".")[0], found[order], np.array(values)[order])


def _column(header: list[str], what: str, path: Path) -> int:
    """The place of the time or the value column. Raises MeterError where the usual names find none, or several."""
    names = TIME_COLUMNS if what == "time" else VALUE_COLUMNS
    found = [place for place, title in enumerate(header) if title.lower() in names]
    if len(found) != 1:
        raise MeterError(
            f"{path.name} has {len(found) or 'no'} {what} column{'s' * (len(found) > 1)} among {header}: call one, and "
            f"only one, {', '.join(names)}"
        )
    return found[0]


def _stamp(text: str, where: str) -> datetime:
    """A time stamp in UTC. Raises MeterError for what is none, or not on a whole minute."""
    try:
        stamp = datetime.fromisoformat(text.strip())
    except ValueError:
        raise MeterError(f"{where}: {text!r} is not an ISO time stamp such as 2020-04-01 01:00:00+00:00") from None
    if stamp.second or stamp.microsecond:
        raise MeterError(f"{where}: {text!r} is not on a whole minute")
    return stamp.astimezone(UTC).replace(tzinfo=None) if stamp.tzinfo else stamp


def _number(text: str) -> float:
    try:
        return number if np.isfinite(number := float(text)) else np.nan
    except ValueError:
        return np.nan


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
    before, after = (int((np.diff(t) > np.timedelta64(1, "D")).sum()) for t in (series.times, repaired[order]))
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
    note = f"{series.name}: {zeros} zeros before the first reading"
    return Series(series.name, series.times, values, (*series.repaired, note))


def hourly(series: Series, how: str) -> Hourly:
    """Put a series on a grid of whole hours: `how="sum"` for energy, `"mean"` for temperature.

    The interval is the most frequent step (it must divide the hour). An hour that lacks one of its intervals is a gap:
    half an hour's energy is not an hour's. Rows that repeat a stamp with the same value count once; with different
    values, nobody knows, so a gap.
    """
    times, values = series.times, series.values
    notes = list(series.repaired)
    steps = (np.diff(times) // _MINUTE).astype(int)
    step = int(np.bincount(steps[steps > 0]).argmax()) if (steps > 0).any() else 60
    if step > 60 or 60 % step:
        raise MeterError(
            f"{series.name}: a reading every {step} minutes; the interval must divide the hour (60, 30, 20, 15, ...)"
        )
    start = times[0].astype("datetime64[h]")
    minutes = ((times - start) // _MINUTE).astype(int)
    off = np.flatnonzero(minutes % step)
    if len(off):
        raise MeterError(
            f"{series.name}: {times[off[0]]} is not a multiple of {step} minutes after the hour, as most readings are"
        )
    slots, first, inverse = np.unique(minutes // step, return_index=True, return_inverse=True)
    kept = values[first]
    doubtful = np.unique(inverse[~np.isclose(values, kept[inverse], rtol=0, atol=0, equal_nan=True)])
    if len(times) > len(slots):
        notes.append(f"{series.name}: {len(times) - len(slots)} repeated rows counted once")
    if len(doubtful):
        notes.append(f"{series.name}: {len(doubtful)} stamps with two different values taken as gaps")
    kept[doubtful] = np.nan
    grid = np.full((slots[-1] * step // 60 + 1, 60 // step), np.nan)
    grid.reshape(-1)[slots] = kept
    return Hourly(series.name, start, grid.sum(axis=1) if how == "sum" else grid.mean(axis=1), tuple(notes))


def windows(load: Hourly, temperature: Hourly, hours: int = HOURS, stride: int = 24) -> Windows:
    """Cut windows of `hours` hours, a new one every `stride` hours, wherever load and temperature are both known
    throughout. The first hour of the load has no past, so the earliest window starts an hour after it.
    """
    if hours < 1 or stride < 1:
        raise ValueError(f"hours and stride must be 1 or more, not {hours} and {stride}")
    first = np.arange(1, len(load.values) - hours + 1, stride)
    rows = first[:, None] + np.arange(hours)
    # temperature at each hour of the load, NaN before its series starts and after it ends
    at = np.arange(len(load.values)) + int((load.start - temperature.start) // _HOUR)
    inside = (at >= 0) & (at < len(temperature.values))
    warm = np.where(inside, temperature.values[np.clip(at, 0, len(temperature.values) - 1)], np.nan)
    lacks_load = np.isnan(load.values)[rows].any(axis=1) | np.isnan(load.values[first - 1])
    lacks_warm = np.isnan(warm)[rows].any(axis=1)
    kept = rows[~lacks_load & ~lacks_warm]
    times = load.start + np.arange(len(load.values)) * _HOUR
    hour = times.astype(int)
    weekday = (hour // 24 + 3) % 7  # 1970-01-01 was a Thursday
    features = np.stack([(hour % 24)[kept], weekday[kept], warm[kept], load.values[kept - 1]], axis=1)
    return Windows(
        features=features.astype(np.float32).reshape(-1, len(FEATURES), hours),
        load=load.values[kept].astype(np.float32).reshape(-1, hours),
        start=times[kept[:, 0]],
        meter=np.zeros(len(kept), dtype=int),
        names=(load.name,),
        left_out={
            "no temperature": int(np.count_nonzero(lacks_warm & ~lacks_load)),
            "gap in the load": int(np.count_nonzero(lacks_load & ~lacks_warm)),
            "both": int(np.count_nonzero(lacks_load & lacks_warm)),
        },
        repaired=(*load.repaired, *temperature.repaired),
    )
