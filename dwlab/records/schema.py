"""The schema of records: the type of each field, checked by msgspec.

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
    """A fault in a record, without the file's name and without what to do."""


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
    records that have another digest, what `kernels.csv.xz` says in its place. ptx_sha256: None in all records.
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
        return vars(self) | {"problem": dict(self.problem)}


SHARED = {"gpu", "date", "copy_gbps", "file"}
"""Fields of a Measurement that a run keeps once, or that only the reader knows."""

TYPES = {
    "text": str, "positive": Positive, "number": Number, "count": Count, "object": ReadOnly, "flag": bool,
    "none_or_count": Count | None, "maybe": NotRequired[Any], "maybe_text": NotRequired[str | None],
    "maybe_positive": NotRequired[Positive | None], "maybe_count": NotRequired[Count | None],
    "maybe_object": NotRequired[ReadOnly | None], "maybe_capability": NotRequired[Capability | None],
}  # fmt: skip
"""maybe_…: may be null or missing."""


def _part(**fields: str) -> dict[str, Any]:
    """Field -> type; a keyword is a type of TYPES, its value names in one text."""
    return {field: TYPES[kind] for kind, names in fields.items() for field in names.split()}


def _row(name: str, *parts: dict[str, Any], **fields: str) -> Any:
    """The type of a row that has these parts and fields."""
    return TypedDict(name, {field: kind for part in (*parts, _part(**fields)) for field, kind in part.items()})


_NAMED = Annotated[str, Meta(min_length=1)]
_KERNEL = _part(text="op path dtype", object="problem")
_TIMED = _part(maybe_positive="time_us p10_us p90_us", maybe_text="failure")
_BESIDE = _part(maybe_text="cold peer", maybe_positive="peer_time_us speedup_vs_peer")  # the baseline
_NETWORK = _part(text="network dtype layout", positive="batch")
_COUNTED = "load_requests load_sectors store_requests store_sectors"
_L2 = "l2_read_sectors l2_write_sectors l2_sm_read_sectors l2_sm_write_sectors"

ONCE: dict[str, Any] = {
    # Where and when it was measured: the GPU as its driver names it, an ISO date, versions.
    "environment": _row(
        "Environment", {"gpu": _NAMED, "date": _NAMED}, maybe_capability="compute_capability", maybe_object="clocks",
        maybe="driver cuda python os dwlab numba numba_cuda cuda_core numpy torch git_revision git_dirty source_sha256",
    ),
    # dwlab.gpu.machine.Ceilings.
    "ceilings": _row(
        "Limits", maybe_positive="copy_gbps l2_gbps fma_tflops launch_us shared_gbps", maybe="measured source"
    ),
    # The GPU as it describes itself: dwlab.gpu.machine.Machine.
    "machine": _row(
        "Device", maybe="name", maybe_capability="compute_capability",
        maybe_positive="sms memory_bytes l2_bytes shared_per_sm shared_per_block registers_per_sm threads_per_sm "
        "blocks_per_sm sm_mhz memory_mhz bus_bits",
    ),
}  # fmt: skip
"""Parts that a run says once."""

Environment, Limits, Device = ONCE.values()

SECTIONS: dict[str, Any] = {
    # One path of one shape, with the stage that dispatch chose for it. *_bound_us: the least time that the copy
    # bandwidth and the FMA rate allow.
    "grid": _row(
        "Grid", _KERNEL, _TIMED, _BESIDE, text="stage", positive="copy_bound_us",
        maybe_positive="fraction_of_copy fma_bound_us",
    ),
    # A path of a short convolution of a model: as `grid`, or the operator short_conv. layout: BHL or BLH; form: what is
    # fused.
    "short": _row(
        "Short", _KERNEL, _TIMED, _BESIDE, text="stage layout form", positive="copy_bound_us",
        maybe_positive="fraction_of_copy fma_bound_us",
    ),
    # One path of a drawn shape. times: of every stage that takes it, id -> µs, or of two that are launched one after
    # the other, "ID, ID"; kernels: empty in all records.
    "shapes": _row("Shape", _KERNEL, _BESIDE, object="times", maybe_object="kernels", maybe_text="failure"),
    # One layer of an image network, or two of them fused, at a batch: our fastest stage and layout, the baseline.
    # `apart`: of fused layers of int8, our own kernels of the two, one after the other.
    "layers": _row(
        "Layer", _KERNEL, _TIMED, _BESIDE, text="layer networks", positive="batch compulsory_bytes copy_bound_us",
        maybe_text="stage layout apart", maybe_positive="fraction_of_copy apart_time_us speedup_vs_apart",
    ),
    # A stage of pointwise layers with sparse filters: its time beside every library's, and our dense stages'. pattern:
    # "2:4", "64:2:16"; sparsity: the fraction of weights that are zero. `peers`: library -> µs of its fastest way;
    # dense: our dense stages' ids -> µs, on the same filters, zeros and all; speedups: the time of each of both over
    # this one's. stage: None where none takes the problem.
    "sparse": _row(
        "Sparse", _KERNEL, _TIMED, _BESIDE, text="layer pattern networks", number="sparsity", object="peers dense",
        positive="batch compulsory_bytes copy_bound_us", maybe_text="stage", maybe_object="speedups",
    ),
    # What the hardware counted of one launch of a stage on a layer, and what its formula predicts; planned_*: in bytes
    # the planner's model at the kernel's tile, of earlier records. Null for what that GPU does not count.
    "layer_counters": _row(
        "LayerCounters", _KERNEL, text="stage layer layout", positive="batch compulsory_bytes", flag="exact",
        count="predicted_load_requests predicted_load_sectors predicted_store_requests predicted_store_sectors",
        maybe_positive="planned_bytes planned_asked_bytes",
        maybe_count=f"{_COUNTED} {_L2} dram_read_bytes dram_write_bytes shared_bank_conflicts",
    ),
    # A stage whose tiles were given, not chosen, warm.
    "tiles": _row(
        "Tile", _KERNEL, text="stage", object="tiles", positive="registers time_us", maybe_count="local_bytes",
        maybe_text="cold",
    ),
    # A whole network at a batch, layer by layer (`apart`) and with fused pairs, and the baseline. joules: an image,
    # ours and the baseline's, each over a window of seconds, and the GPU's power at rest. *_launches: how kernels
    # follow each other (dependent_launch.WORDS), *_plain_us: the time one after the other.
    "networks": _row(
        "Whole", _NETWORK, _BESIDE, positive="resolution",
        maybe_positive="apart_us apart_p10_us apart_p90_us apart_plain_us fused_us fused_p10_us fused_p90_us "
        "fused_plain_us joules watts window_s rest_watts peer_joules peer_watts peer_window_s peer_rest_watts",
        maybe_text="apart_launches fused_launches checked peer_dtype failure energy_failure",
        maybe_count="kernels fused_kernels pairs operations",
    ),
    # A model of one's own (inference.own): kernels of ours, of these for two layers, and nodes that PyTorch runs;
    # error, torch_error: of the whole against float64, relative to its norm.
    "own": _row(
        "OwnModel", _NETWORK, _TIMED, _BESIDE, positive="resolution", maybe_count="kernels pairs operations",
        maybe="error torch_error",
    ),
    # What is launched for a problem before and after the search of DWLAB_TUNE=on, and its times in turn; without
    # after_us it is the same. seconds: of the first launch.
    "tuned": _row(
        "TunedLaunch", _KERNEL, maybe_text="before after failure", maybe_positive="before_us after_us seconds"
    ),
    # A network run in a way that might take less energy; joules: an image.
    "energy_tries": _row(
        "EnergyTry", _NETWORK, text="way", count="kernels", positive="time_us joules watts window_s rest_watts"
    ),
    # The fastest stage of a network's layer, or of two fused ("1.depthwise + 1.pointwise"); of alike ones the first.
    # Alone, and with its arrays in the L2 as far as they fit.
    "network_kernels": _row("NetworkKernel", _NETWORK, text="layers stage", positive="time_us"),
    # One of compute-sanitizer's tools over one stage, whose kernel the digest tells.
    "sanitizer": _row("Sanitizer", text="tool stage", flag="clean", maybe_text="message version kernel_sha256"),
    # A sum against float64. terms: of each output; error: the greatest |out - ref| of all outputs over the sum of the
    # terms' absolute values; norm_error: of the whole output.
    "reduction_error": _row(
        "ReductionError", text="op path stage", object="problem", positive="terms allowed runs",
        number="error norm_error", flag="repeatable",
    ),
    # The fastest device copy of so many bytes, read and written together, out of the L2 as far as that can be.
    "copies": _row("Copy", positive="bytes time_us p10_us p90_us gbps", text="way cold"),
    # Tests that hold the interpreter against a GPU.
    "comparisons": _row("ComparisonCount", text="name", count="passed failed skipped"),
    # One small kernel that was tried on the way to copy speed; bytes: that it must move, and gbps by that.
    "tries": _row(
        "Try", _TIMED, text="group name", positive="bytes", maybe_positive="gbps", maybe_count="registers",
        maybe_text="note",
    ),
}  # fmt: skip
"""Parts that a run may have beside its measurements: name -> type of a row."""

COUNTED_OF_LAYERS = tuple(f"{_COUNTED} {_L2} dram_read_bytes dram_write_bytes shared_bank_conflicts".split())
"""Fields of layer_counters that the hardware counted."""

Predicted = _row(
    "Predicted", count="load_sectors store_sectors", maybe="store_requests bytes_moved exact",
    maybe_count="load_requests atomic_requests atomic_sectors",
)  # fmt: skip
"""A stage's formula, beside a row of counters."""

PARTS: dict[str, Any] = {
    "measurements": TypedDict(
        "Timed",
        {
            one.name: one.type if one.default is dataclasses.MISSING else NotRequired[one.type | None]
            for one in dataclasses.fields(Measurement)
            if one.name not in SHARED
        },
    ),
    "peers": ReadOnly,
    # What the hardware counted of one launch: measure.counters.Counters. Null for what that GPU does not count.
    "counters": _row(
        "Counted", _part(text="op path stage", object="problem"), {"dtype": NotRequired[str], "predicted": Predicted},
        none_or_count=f"{_COUNTED} dram_read_bytes dram_write_bytes shared_bank_conflicts",
        maybe_count=f"atomic_requests atomic_sectors {_L2}",
    ),
    **SECTIONS,
}  # fmt: skip
"""All that are lists of rows."""

Timed = PARTS["measurements"]

Run = msgspec.defstruct(
    "Run",
    [
        ("schema", int),
        ("environment", Environment),
        ("ceilings", Limits),
        ("measurements", list[Timed]),
        ("machine", Device | None, None),
        *((name, list[row] | None, None) for name, row in PARTS.items() if name != "measurements"),
        ("notes", list[str] | None, None),
        ("file", str, ""),
    ],
)
"""One run. file: its name in a packed file (dwlab.records.packing)."""


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
            kind = type(value).__name__
            raise RecordError(f"is JSON but no dwlab record: it is a {kind}, not an object. {ELSEWHERE}") from None
        check_schema(value.get("schema"))
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
    """The value of JSON text. Raises RecordError, which says of text that is none what may have become of it."""
    again = "Copy it again from where it was written, or delete it"
    try:
        text = data.decode("utf-8").strip()
        if not text:
            raise RecordError(f"is truncated: it is empty. {again}")
        return json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise RecordError("is not JSON (it is not even text): it is no record, move it elsewhere") from None
    except json.JSONDecodeError as error:
        if text.startswith("{") and (not text.endswith("}") or error.pos >= len(text)):
            raise RecordError(f"is truncated: it ends in the middle, after {len(text)} characters. {again}") from error
        where = f"{error.msg}, line {error.lineno} column {error.colno}"
        raise RecordError(f"is not JSON ({where}): restore it (git checkout), or move it elsewhere") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"is damaged: {error}; restore it (git checkout) or delete it") from error


def _no_constant(text: str) -> float:
    raise ValueError(f"it holds {text}, which no measurement is")


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
