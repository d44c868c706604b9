"""What a record may hold: the type of each field, checked by msgspec.

A run is one JSON object: the schema's number, the environment (GPU, driver, versions, git revision, date, clocks), the
ceilings measured in the same run, the baselines tried (`peers`), the hardware's counters where they could be read, the
measurements, and those of SECTIONS that it has. It names no user, no host and no absolute path. Fields that are not
listed here are a later dwlab's, and are passed over.
"""

# No `from __future__ import annotations`: a TypedDict cannot tell what is NotRequired from a string.
import copy
import dataclasses
import functools
import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, NotRequired, TypedDict

import msgspec
from msgspec import Meta

SCHEMA = 1


class RecordError(RuntimeError):
    """A record that cannot be read or written; the message says why and what to do."""


class Damage(ValueError):
    """What is wrong in a record, without the file's name and without what to do."""


class ReadOnly(dict):
    """An object of a record: a dict that nobody changes, as all readers share it. `dict(one)` and `one | …` are new."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("what a record says is not changed: take a copy, dict(...)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnly, (dict(self),)


Positive = Annotated[int, Meta(gt=0)] | Annotated[float, Meta(gt=0)]
Number = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
Capability = tuple[int, int]

# May be null or missing.
MaybeText = NotRequired[str | None]
MaybePositive = NotRequired[Positive | None]
MaybeCount = NotRequired[Count | None]


@dataclass(frozen=True)
class Measurement:
    """One stage on one problem, timed on one GPU.

    time_us: median of one launch, with p10_us and p90_us over ``rounds`` rounds of ``launches`` launches each.
    effective_gbps: compulsory_bytes / time, in 1e9 bytes a second; copy_gbps: the device copy measured in the same
    run (bytes read plus bytes written); fraction_of_copy: their ratio. flops: multiplications and additions of the
    taps inside the signal; intensity: flops / compulsory_bytes. predicted_bytes: what the stage's formula says that
    its warps request, 32 bytes a sector. speedup_vs_naive: the naive stage's time over this one, same run and problem.
    `peer`, peer_time_us, speedup_vs_peer: the baseline, the fastest library that computed the same, None where none was
    measured.
    kernel_sha256: the stage's digest (dwlab.kernels.digests), so that a row of an earlier kernel is known; of
    records that have another digest, what `kernels.csv` says in its place. ptx_sha256: None in all records.
    """

    gpu: str
    date: str
    op: str
    path: str
    stage: str
    problem: ReadOnly
    dtype: str
    time_us: Positive
    p10_us: Positive
    p90_us: Positive
    rounds: Positive
    launches: Positive
    method: str
    cold: str
    compulsory_bytes: Positive
    effective_gbps: Positive
    copy_gbps: Positive
    fraction_of_copy: Positive
    flops: Positive
    intensity: Positive
    speedup_vs_naive: Positive | None = None
    peer: str | None = None
    peer_time_us: Positive | None = None
    speedup_vs_peer: Positive | None = None
    predicted_bytes: Positive | None = None
    order: Positive | None = None
    kernel_sha256: str | None = None
    ptx_sha256: str | None = None
    note: str = ""
    file: str = ""

    @property
    def id(self) -> str:
        """The stage's id, such as "depthwise1d/forward/naive"."""
        return f"{self.op}/{self.path}/{self.stage}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, in the order of the fields."""
        return dataclasses.asdict(self) | {"problem": dict(self.problem)}


SHARED = {"gpu", "date", "copy_gbps", "file"}
"""Fields of a Measurement that a run keeps once, or that only the reader knows."""

Timed = TypedDict(
    "Timed",
    {
        one.name: one.type if one.default is dataclasses.MISSING else NotRequired[one.type | None]
        for one in dataclasses.fields(Measurement)
        if one.name not in SHARED
    },
)
"""A Measurement as a run has it."""


Environment = TypedDict(
    "Environment",
    {
        "gpu": Annotated[str, Meta(min_length=1)],
        "date": Annotated[str, Meta(min_length=1)],
        "compute_capability": NotRequired[Capability | None],
        "clocks": NotRequired[ReadOnly | None],
        **dict.fromkeys(
            ("driver", "cuda", "python", "os", "dwlab", "numba", "numba_cuda", "cuda_core", "numpy", "torch",
             "git_revision", "git_dirty", "source_sha256"),
            NotRequired[Any],
        ),
    },
)  # fmt: skip
"""Where and when it was measured: the GPU as its driver names it, an ISO date, versions."""

Limits = TypedDict(
    "Limits",
    dict.fromkeys(("copy_gbps", "l2_gbps", "fma_tflops", "launch_us", "shared_gbps"), MaybePositive)
    | dict.fromkeys(("measured", "source"), NotRequired[Any]),
)
"""Ceilings of a run: dwlab.gpu.machine.Ceilings."""

Device = TypedDict(
    "Device",
    {"name": NotRequired[Any], "compute_capability": NotRequired[Capability | None]}
    | dict.fromkeys(
        ("sms", "memory_bytes", "l2_bytes", "shared_per_sm", "shared_per_block", "registers_per_sm", "threads_per_sm",
         "blocks_per_sm", "sm_mhz", "memory_mhz", "bus_bits"),
        MaybePositive,
    ),
)  # fmt: skip
"""The GPU as it describes itself: dwlab.gpu.machine.Machine."""


class Predicted(TypedDict):
    """What a stage's formula says, beside a row of counters."""

    load_sectors: Count
    store_sectors: Count
    load_requests: MaybeCount
    store_requests: NotRequired[Any]
    atomic_requests: MaybeCount
    atomic_sectors: MaybeCount
    bytes_moved: NotRequired[Any]
    exact: NotRequired[Any]


class Counted(TypedDict):
    """What the hardware counted of one launch: measure.counters.Counters. Null for what that GPU does not count."""

    op: str
    path: str
    stage: str
    problem: ReadOnly
    dtype: NotRequired[str]
    predicted: Predicted
    load_requests: Count | None
    load_sectors: Count | None
    store_requests: Count | None
    store_sectors: Count | None
    dram_read_bytes: Count | None
    dram_write_bytes: Count | None
    shared_bank_conflicts: Count | None
    # Not in every record.
    atomic_requests: MaybeCount
    atomic_sectors: MaybeCount
    l2_read_sectors: MaybeCount
    l2_write_sectors: MaybeCount
    l2_sm_read_sectors: MaybeCount
    l2_sm_write_sectors: MaybeCount


# ------------------------------------------------------------------------------------------- parts beside measurements


class _Kernel(TypedDict):
    op: str
    path: str
    problem: ReadOnly
    dtype: str


class _Rounds(TypedDict):
    time_us: MaybePositive
    p10_us: MaybePositive
    p90_us: MaybePositive
    failure: MaybeText


class _Beside(TypedDict):
    cold: MaybeText
    peer: MaybeText
    peer_time_us: MaybePositive
    speedup_vs_peer: MaybePositive


class _Network(TypedDict):
    network: str
    batch: Positive
    dtype: str
    layout: str


class _Energy(TypedDict):
    joules: MaybePositive
    watts: MaybePositive
    window_s: MaybePositive
    rest_watts: MaybePositive


class Grid(_Kernel, _Rounds, _Beside):
    """One path of one shape, with the stage that dispatch chose for it.

    *_bound_us: the least time that the copy bandwidth and the FMA rate allow.
    """

    stage: str
    copy_bound_us: Positive
    fraction_of_copy: MaybePositive
    fma_bound_us: MaybePositive


class Shape(_Kernel, _Beside):
    """One path of a drawn shape.

    times: of every stage that takes it, id -> µs, or of two that are launched one after the other, "ID, ID"; kernels:
    empty in all records.
    """

    times: ReadOnly
    kernels: NotRequired[ReadOnly | None]
    failure: MaybeText


class Layer(_Kernel, _Rounds, _Beside):
    """One layer of an image network, or two of them fused, at a batch: our fastest stage and layout, the baseline.

    `apart`: of fused layers of int8, our own kernels of the two, one after the other.
    """

    layer: str
    batch: Positive
    networks: str
    compulsory_bytes: Positive
    copy_bound_us: Positive
    stage: MaybeText
    layout: MaybeText
    fraction_of_copy: MaybePositive
    apart: MaybeText
    apart_time_us: MaybePositive
    speedup_vs_apart: MaybePositive


class Sparse(_Kernel, _Rounds, _Beside):
    """A stage of pointwise layers with sparse filters: its time beside every library's, and our dense stages'.

    pattern: "2:4", "64:2:16"; sparsity: the fraction of weights that are zero. `peers`: library -> µs of its fastest
    way; dense: our dense stages' ids -> µs, on the same filters, zeros and all; speedups: the time of each of both over
    this one's. stage: None where none takes the problem.
    """

    layer: str
    batch: Positive
    pattern: str
    sparsity: Number
    networks: str
    compulsory_bytes: Positive
    copy_bound_us: Positive
    peers: ReadOnly
    dense: ReadOnly
    stage: MaybeText
    speedups: NotRequired[ReadOnly | None]


class LayerCounters(_Kernel):
    """What the hardware counted of one launch of a stage on a layer.

    And what its formula predicts; planned_*: in bytes the planner's model at the kernel's tile, of earlier records.
    Null for what that GPU does not count.
    """

    stage: str
    layer: str
    batch: Positive
    layout: str
    exact: bool
    compulsory_bytes: Positive
    planned_bytes: MaybePositive
    planned_asked_bytes: MaybePositive
    predicted_load_requests: Count
    predicted_load_sectors: Count
    predicted_store_requests: Count
    predicted_store_sectors: Count
    load_requests: MaybeCount
    load_sectors: MaybeCount
    store_requests: MaybeCount
    store_sectors: MaybeCount
    l2_sm_read_sectors: MaybeCount
    l2_sm_write_sectors: MaybeCount
    l2_read_sectors: MaybeCount
    l2_write_sectors: MaybeCount
    dram_read_bytes: MaybeCount
    dram_write_bytes: MaybeCount
    shared_bank_conflicts: MaybeCount


class Tile(_Kernel):
    """A stage whose tiles were given, not chosen, warm."""

    stage: str
    tiles: ReadOnly
    registers: Positive
    local_bytes: MaybeCount
    time_us: Positive
    cold: MaybeText


class Whole(_Network, _Beside, _Energy):
    """A whole network at a batch, layer by layer (`apart`) and with fused pairs, and the baseline.

    joules: an image, ours and the baseline's, each over a window of seconds, and the GPU's power at rest. *_launches:
    how kernels follow each other (dependent_launch.WORDS), *_plain_us: the time one after the other.
    """

    resolution: Positive
    apart_us: MaybePositive
    apart_p10_us: MaybePositive
    apart_p90_us: MaybePositive
    apart_launches: MaybeText
    apart_plain_us: MaybePositive
    kernels: MaybeCount
    fused_us: MaybePositive
    fused_p10_us: MaybePositive
    fused_p90_us: MaybePositive
    fused_launches: MaybeText
    fused_plain_us: MaybePositive
    fused_kernels: MaybeCount
    pairs: MaybeCount
    operations: MaybeCount
    checked: MaybeText
    peer_dtype: MaybeText
    failure: MaybeText
    peer_joules: MaybePositive
    peer_watts: MaybePositive
    peer_window_s: MaybePositive
    peer_rest_watts: MaybePositive
    energy_failure: MaybeText


class EnergyTry(_Network):
    """A network run in a way that might take less energy; joules: an image."""

    way: str
    kernels: Count
    time_us: Positive
    joules: Positive
    watts: Positive
    window_s: Positive
    rest_watts: Positive


class NetworkKernel(_Network):
    """The fastest stage of a network's layer, or of two fused ("1.depthwise + 1.pointwise"); of alike ones the first.

    Alone, and with its arrays in the L2 as far as they fit.
    """

    layers: str
    stage: str
    time_us: Positive


class Sanitizer(TypedDict):
    """One of compute-sanitizer's tools over one stage, whose kernel the digest tells."""

    tool: str
    stage: str
    clean: bool
    message: MaybeText
    version: MaybeText
    kernel_sha256: MaybeText


class ReductionError(TypedDict):
    """A sum against float64.

    terms: of each output; error: the greatest |out - ref| of all outputs over the sum of the terms' absolute values;
    norm_error: of the whole output.
    """

    op: str
    path: str
    stage: str
    problem: ReadOnly
    terms: Positive
    error: Number
    norm_error: Number
    allowed: Positive
    runs: Positive
    repeatable: bool


class Copy(TypedDict):
    """The fastest device copy of so many bytes, read and written together, out of the L2 as far as that can be."""

    bytes: Positive
    time_us: Positive
    p10_us: Positive
    p90_us: Positive
    gbps: Positive
    way: str
    cold: str


class ComparisonCount(TypedDict):
    """Tests that hold the interpreter against a GPU."""

    name: str
    passed: Count
    failed: Count
    skipped: Count


class Try(_Rounds):
    """One small kernel that was tried on the way to the roof; bytes: that it must move, and gbps by that."""

    group: str
    name: str
    bytes: Positive
    gbps: MaybePositive
    registers: MaybeCount
    note: MaybeText


COUNTED_OF_LAYERS = tuple(name for name, kind in LayerCounters.__annotations__.items() if kind == MaybeCount)
"""What a row of layer_counters has of the hardware."""

SECTIONS: dict[str, Any] = {
    "grid": Grid,
    "shapes": Shape,
    "layers": Layer,
    "sparse": Sparse,
    "layer_counters": LayerCounters,
    "tiles": Tile,
    "networks": Whole,
    "energy_tries": EnergyTry,
    "network_kernels": NetworkKernel,
    "sanitizer": Sanitizer,
    "reduction_error": ReductionError,
    "copies": Copy,
    "comparisons": ComparisonCount,
    "tries": Try,
}
"""Parts that a run may have beside its measurements: name -> type of a row."""

PARTS: dict[str, Any] = {"measurements": Timed, "peers": ReadOnly, "counters": Counted, **SECTIONS}
"""All that are lists of rows."""

ONCE: dict[str, Any] = {"environment": Environment, "ceilings": Limits, "machine": Device}
"""What a run says once."""

_ROWS = [(name, list[row] | None, None) for name, row in PARTS.items() if name != "measurements"]

Run = msgspec.defstruct(
    "Run",
    [
        ("schema", int),
        ("environment", Environment),
        ("ceilings", Limits),
        ("measurements", list[Timed]),
        ("machine", Device | None, None),
        *_ROWS,
        ("notes", list[str] | None, None),
        ("file", str, ""),
    ],
)
"""One run. file: its name in a packed file (dwlab.records.packing)."""

Rest = msgspec.defstruct(
    "Rest",
    [("file", str), ("places", dict[str, list[Count]]), ("measurements", list[Timed] | None, None), *_ROWS],
)
"""Rows of a run that stand in the history, and each one's place among the run's rows of that part."""


# ------------------------------------------------------------------------------------------------------------- reading


def frozen(value: Any) -> Any:
    """A JSON value that nobody can change: objects become ReadOnly, lists tuples."""
    if isinstance(value, dict):
        return ReadOnly({name: frozen(one) if isinstance(one, dict | list) else one for name, one in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def _object(kind: type, value: Any) -> Any:
    """msgspec's hook for a type that it does not know."""
    if kind is not ReadOnly:
        raise NotImplementedError(kind)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return frozen(value)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder:
    return msgspec.json.Decoder(kind, dec_hook=_object)


def decode(data: bytes, kind: Any) -> Any:
    """JSON text as `kind`, a Struct. Raises RecordError for what is no JSON of ours, Damage for a wrong field."""
    try:
        return _decoder(kind).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        value = plain(data)
        if not isinstance(value, dict):
            raise RecordError(
                f"is JSON but no dwlab record: it is a {_kind(value)}, not an object. {ELSEWHERE}"
            ) from None
        check_schema(value.get("schema", SCHEMA if kind is Rest else None))
        raise Damage(_wrong(value, str(error))) from None


ELSEWHERE = "Move it out of the records' folder"


def check_schema(schema: Any) -> None:
    """Raises RecordError unless this dwlab reads records of a schema."""
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        why = f"its 'schema' is {schema!r}, not a number from 1 up"
        raise RecordError(f"is JSON but no dwlab record: {why}. {ELSEWHERE}")
    if schema > SCHEMA:
        raise RecordError(
            f"was written by a newer dwlab (schema {schema}; this one reads up to {SCHEMA}). "
            "Update dwlab to read it; the file is left as it is"
        )


def plain(data: bytes) -> Any:
    """What JSON text holds. Raises RecordError, which says of text that is none what may have become of it."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise RecordError("is not JSON (it is not even text): it is no record, move it elsewhere") from None
    if not text.strip():
        raise RecordError("is truncated: it is empty. Copy it again from where it was written, or delete it")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        body = text.strip()
        if body.startswith("{") and (not body.endswith("}") or error.pos >= len(text.rstrip())):
            raise RecordError(
                f"is truncated: it ends in the middle, after {len(text)} characters. "
                "Copy it again from where it was written, or delete it; other records are not touched"
            ) from error
        raise RecordError(
            f"is not JSON ({error.msg}, line {error.lineno} column {error.colno}): "
            "restore it (git checkout), or move it elsewhere if it is no record"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"is damaged: {error}; restore it (git checkout) or delete it") from error


def _no_constant(text: str) -> float:
    raise ValueError(f"it holds {text}, which no measurement is")


# -------------------------------------------------------------------------------------------- what msgspec refuses


def _wrong(value: Any, message: str) -> str:
    """msgspec's message, with the place and the value in front: "measurements[0].time_us is 'fast': Expected …"."""
    problem, _, place = message.partition(" - at `$.")
    place = place.rstrip("`")
    try:
        for index, key in re.findall(r"\[(\d+)\]|([^.\[]+)", place):
            value = value[int(index) if index else key]
    except (LookupError, TypeError):  # of something else than the JSON that was read
        return f"{problem} at {place}"
    what = f" is {value!r}" if not isinstance(value, dict | list) or not value else ""
    return f"{place}{what}: {problem}" if place else problem


def _kind(value: Any) -> str:
    return type(value).__name__
