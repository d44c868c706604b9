"""Kernels as the compiler makes them, with a GPU or without: registers, spills, occupancy, float64, PTX and SASS.

    compile("depthwise1d/forward/wide", problem="paper", cc="8.0")    a stage
    compile(kernel, signature=(x, w, y, 47), block=128)               a kernel of your own, in either mode
    table(stages("depthwise1d", "forward"), "paper")                  one row a stage

Needed are numba-cuda and the compiler that its extras install; no GPU and no driver. They run in a process of their own
(process.py). The way there is that of a launch: Numba, NVVM, link-time optimization and ptxas inside nvJitLink, from
9.0 on for an architecture's own target such as sm_90a. So the numbers are those of the code that such a GPU would run.

Sources: registers, spills and stack are ptxas' own words (its verbose log); shared memory is the size of the kernel's
section in the cubin; float64 instructions are counted in the PTX after link-time optimization, which is what ptxas
gets; SASS is what nvdisasm reads out of the cubin.
"""

from __future__ import annotations

import hashlib
import html
import importlib.metadata
import operator
import os
import re
import shutil
import struct
import subprocess
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from dwlab import target
from dwlab.compiler import process
from dwlab.compiler.precompile import types_of
from dwlab.compiler.process import InspectError, Job, NoCompilerError, dotted, missing
from dwlab.gpu import occupancy as occupancy_rules
from dwlab.gpu.occupancy import Occupancy
from dwlab.kernels import registry as stage_list
from dwlab.kernels.command import is_own, own_kernel, problem_of, whole_id
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems import DepthwiseConv1d
from dwlab.problems.layers import problem as problem_named
from dwlab.simt import kernel_of
from dwlab.text import commandline
from dwlab.text.tabular import as_html, columns

DEFAULT_CC = (9, 0)  # where there is no GPU: the H200 that the records come from
SECONDS = 300  # that the compiler may take, for one kernel; some 60 times what the largest stage takes
KEPT = 128  # results kept in memory

# Opcodes by the memory that they access; what stands before the first full stop. LDGSTS copies from global to shared.
SPACES = {
    "global": ("LDG", "LDGSTS", "STG", "ATOMG", "RED", "REDG", "UBLKCP"),
    "shared": ("LDS", "LDSM", "STS", "STSM", "ATOMS"),
    "local": ("LDL", "STL"),
    "generic": ("LD", "ST", "ATOM"),
}


@dataclass(frozen=True)
class Compiled:
    """One kernel compiled for one compute capability.

    name: the stage's id or the kernel's name; problem: what the stage is to run, "" for a kernel of one's own.
    cc: compute capability (major, minor); cc_from: who chose it.
    registers: of a thread. spill_stores, spill_loads: bytes that a thread moves because registers were not enough, as
    ptxas counts them in the code. local_bytes: a thread's local memory (spills, and local arrays whose indices are not
    known to the compiler). shared_bytes: of a block, static; dynamic_shared_bytes: what the launch adds.
    threads: of a block; None, and so no occupancy, where no block was given.
    float64_instructions: PTX instructions on float64 values, moves and conversions included.
    sass: None where sass_missing says why. opcodes: SASS opcode -> how often it stands in the code (not how often it
    runs), most frequent first; what never does anything (NOP, and what the constant !PT predicates) is left out; empty
    without SASS.
    """

    name: str
    problem: str
    cc: tuple[int, int]
    registers: int
    spill_stores: int
    spill_loads: int
    local_bytes: int
    shared_bytes: int
    dynamic_shared_bytes: int
    threads: int | None
    occupancy: Occupancy | None
    float64_instructions: int
    ptx: str = field(repr=False)
    sass: str | None = field(repr=False)
    sass_missing: str
    opcodes: dict[str, int] = field(repr=False)
    compiler: str
    cc_from: str = "requested"
    notes: tuple[str, ...] = ()

    def accesses(self, space: str) -> dict[str, int]:
        """Opcodes that access a memory: "global", "shared", "local" or "generic" (one of them, known when it runs).

        Raises InspectError for another name.
        """
        if space not in SPACES:
            raise InspectError(f"there is no memory {space!r}: give one of {', '.join(SPACES)}")
        return {name: count for name, count in self.opcodes.items() if name.split(".")[0] in SPACES[space]}

    @property
    def ffma(self) -> int | None:
        """float32 multiply-adds in the SASS; None without it."""
        return None if self.sass is None else sum(n for name, n in self.opcodes.items() if name.startswith("FFMA"))

    def rows(self) -> list[tuple[str, str]]:
        """The lines of str(): (what, how much)."""
        more = f", and {self.dynamic_shared_bytes:,} more at launch" if self.dynamic_shared_bytes else ""
        found = [
            ("registers", f"{self.registers} a thread"),
            ("spills", f"{self.spill_stores:,} bytes stored, {self.spill_loads:,} bytes loaded"),
            ("local memory", f"{self.local_bytes:,} bytes a thread"),
            ("shared memory", f"{self.shared_bytes:,} bytes a block{more}"),
            ("threads", "not given (block=…)" if self.threads is None else f"{self.threads:,} a block"),
            ("occupancy", "needs the block's threads" if self.occupancy is None else _occupancy(self.occupancy)),
            ("float64", _count(self.float64_instructions, "PTX instruction")),
        ]
        if self.sass is None:
            return [*found, ("SASS", self.sass_missing)]
        found.append(("FFMA", _count(self.ffma or 0, "instruction")))
        for space in SPACES:
            found_here = self.accesses(space)
            if found_here or space in ("global", "shared"):
                found.append((f"{space} access", _opcodes(found_here)))
        return found

    def _title(self) -> str:
        on = f" on {self.problem}" if self.problem else ""
        return f"{self.name}{on}, compiled for {dotted(self.cc)} ({self.cc_from}) by {self.compiler}"

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(what) for what, _ in rows)
        lines = [self._title(), *(f"  {what:{width}}  {much}" for what, much in rows)]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return as_html(("what", "how much"), self.rows(), self._title(), (1,)) + _listed(self.notes)

    def to_dict(self, code: bool = False) -> dict[str, Any]:
        """Every field but the texts, which code=True adds ("ptx", "sass"), for programs."""
        plain = asdict(self)
        if not code:
            del plain["ptx"], plain["sass"]
        return plain | {"cc": dotted(self.cc), "ffma": self.ffma}


@dataclass(frozen=True)
class Table:
    """Stages compiled for one problem and compute capability, one row each.

    rows: what was compiled. refused: stage id -> why it has no row.
    """

    problem: DepthwiseConv1d
    cc: tuple[int, int]
    rows: tuple[Compiled, ...]
    refused: dict[str, str]
    cc_from: str

    COLUMNS = (
        ("stage", lambda one: one.name),
        ("registers", lambda one: str(one.registers)),
        ("spilled bytes", lambda one: f"{one.spill_stores + one.spill_loads:,}"),
        ("local bytes", lambda one: f"{one.local_bytes:,}"),
        ("shared bytes", lambda one: f"{one.shared_bytes + one.dynamic_shared_bytes:,}"),
        ("occupancy", lambda one: "" if one.occupancy is None else _percent(one.occupancy)),
        ("float64", lambda one: str(one.float64_instructions)),
        ("FFMA", lambda one: "" if one.ffma is None else f"{one.ffma:,}"),
        ("global access", lambda one: _opcodes(one.accesses("global"))),
        ("shared access", lambda one: _opcodes(one.accesses("shared"))),
    )
    _LEFT = (0, 8, 9)

    def _body(self) -> tuple[list[str], list[list[str]]]:
        return [head for head, _ in self.COLUMNS], [[cell(one) for _, cell in self.COLUMNS] for one in self.rows]

    def _title(self) -> str:
        by = f" by {self.rows[0].compiler}" if self.rows else ""
        return f"{self.problem}, compiled for {dotted(self.cc)} ({self.cc_from}){by}"

    def _notes(self) -> list[str]:
        missing = {one.sass_missing for one in self.rows if one.sass is None}
        own = [f"{one.name}: {note}" for one in self.rows for note in one.notes]
        refused = [f"{id} does not compile: {why}" for id, why in self.refused.items()]
        return [*refused, *(f"SASS {why}" for why in sorted(missing)), *own]

    def __str__(self) -> str:
        return "\n".join([self._title(), columns(*self._body(), self._LEFT), *self._notes()])

    def _repr_html_(self) -> str:
        return as_html(*self._body(), self._title(), self._LEFT) + _listed(self._notes())

    def to_dict(self) -> dict[str, Any]:
        """The problem, the compute capability, a dict for each row, and what was refused, for programs."""
        return {"problem": asdict(self.problem), "cc": dotted(self.cc), "rows": [one.to_dict() for one in self.rows],
                "refused": self.refused}  # fmt: skip


# --- what is requested ------------------------------------------------------------------------------------------------


def compile(  # the builtin of this name is not used here
    kernel: Any,
    *,
    problem: DepthwiseConv1d | str | None = None,
    signature: str | Sequence[Any] | None = None,
    cc: tuple[int, int] | str | None = None,
    block: int | Sequence[int] | None = None,
    shared_bytes: int = 0,
) -> Compiled:
    """Compiles a kernel, in a process of its own, and says what came of it. Results are kept.

    kernel: a stage or its id, with the problem that it is to run; or a kernel that any cuda.jit made (in either mode),
    or a plain function, with a signature unless it was made with one: what Numba takes as text
    ("void(float32[:,:,::1], int64)"), or an example or Numba type for each argument. cc: compute capability, "8.0" or
    (8, 0); None for this machine's GPU, 9.0 if there is none.
    block, shared_bytes: how your own kernel is to be launched (threads, dynamic shared memory); a stage knows that.

    Raises NoCompilerError where there is no compiler; InspectError for a compute capability that is unknown or too old
    for the compiler or for an instruction of the kernel, and for a kernel that does not compile; StageError with the
    nearest id for a stage that does not exist; ProblemError for a problem that is none.
    """
    wanted, origin = _capability(cc)
    job = _job(kernel, problem, signature, block, shared_bytes)
    (found,) = _compile([job], wanted, origin)
    if isinstance(found, str):
        raise InspectError(f"{job.name} does not compile for {dotted(wanted)}: {found}")
    return found


def table(
    stages: Iterable[stage_list.Stage | str] | None = None,
    problem: DepthwiseConv1d | str = "paper",
    cc: tuple[int, int] | str | None = None,
) -> Table:
    """Compiles stages (all of them if None) for one problem: one row each, and the reason for each that has none.

    Raises as `compile` does, but for what one stage alone cannot do.
    """
    wanted, origin = _capability(cc)
    if stages is None:
        stages = stage_list.stages("depthwise1d")
    chosen = [stages] if isinstance(stages, str) else list(stages)
    chosen = [stage_list.stage(one) if isinstance(one, str) else one for one in chosen]
    shape = problem_named(problem)
    taken = [one for one in chosen if shape.dtype in one.dtypes]
    found = _compile([_job(one, shape, None, None, 0) for one in taken], wanted, origin)
    refused = {one.id: f"it does not take rows of {shape.dtype}" for one in chosen if one not in taken}
    refused |= {one.id: why for one, why in zip(taken, found, strict=True) if isinstance(why, str)}
    return Table(shape, wanted, tuple(one for one in found if isinstance(one, Compiled)), refused, origin)


def _capability(cc: tuple[int, int] | str | None) -> tuple[tuple[int, int], str]:
    """(compute capability, who chose it). Raises InspectError for one that the table of occupancy.py does not have."""
    origin = "requested"
    if cc is None and target.mode == "gpu":
        cc, origin = tuple(target.cuda.get_current_device().compute_capability)[:2], "this GPU's"
    elif cc is None:
        cc, origin = DEFAULT_CC, "the default without a GPU"
    try:
        return occupancy_rules.limits(cc).compute_capability, origin
    except ValueError as error:
        raise InspectError(str(error)) from None


def _job(kernel: Any, problem: Any, signature: Any, block: Any, shared_bytes: int) -> Job:
    if isinstance(kernel, str):
        kernel = stage_list.stage(kernel)
    if isinstance(kernel, stage_list.Stage):
        if signature is not None or block is not None or shared_bytes:
            raise InspectError(f"{kernel.id} knows its signature and launch: give problem=… and no more")
        if problem is None:
            raise InspectError(f"{kernel.id} needs a problem: problem='paper', 'B,H,L,K' or a DepthwiseConv1d")
        return _stage_job(kernel, problem_named(problem))
    name = getattr(kernel, "__name__", type(kernel).__name__)
    if isinstance(kernel, stage_list.ByShape):
        if problem is None:
            raise InspectError(f"{name} is made for a shape: give problem=… besides the signature")
        kernel = kernel.for_problem(problem_named(problem))
    elif problem is not None:
        raise InspectError(f"{name} is no stage: give signature=…; or stage(…).with_kernel(kernel), and the problem")
    if not isinstance(getattr(kernel, "py_func", kernel), FunctionType):
        raise InspectError(f"compile takes a stage, a kernel or a function, not {type(kernel).__name__} {kernel!r}")
    if process.options(kernel).get("device"):
        raise InspectError(f"{name} is a device function: compile a kernel that calls it")
    own = getattr(kernel_of(kernel), "arg_types", ()) if signature is None else ()
    signature = own[0] if len(own) == 1 else signature
    if signature is None:
        raise InspectError(
            f"{name} needs a signature: an example of each argument, signature=(x, y, 3), or text such as "
            "'void(float32[::1], int64)'"
        )
    if not isinstance(signature, str):
        signature = tuple(_argument(value) for value in signature)
    sizes = () if block is None else tuple(block) if isinstance(block, (tuple, list)) else (block,)
    try:
        threads = int(np.prod([operator.index(size) for size in sizes], dtype=object)) if sizes else None
        dynamic = operator.index(shared_bytes)
    except TypeError:
        raise InspectError(f"block={block!r}, shared_bytes={shared_bytes!r}: give whole numbers") from None
    if dynamic < 0 or (threads is not None and threads < 1):
        raise InspectError(f"block={block!r}, shared_bytes={shared_bytes!r}: 1 thread and 0 bytes are the least")
    return Job(name, "", None, None, process.pickled(kernel), signature, threads, dynamic)


def _stage_job(one: stage_list.Stage, problem: DepthwiseConv1d) -> Job:
    how = one.launch(problem)
    registered = any(one.id == other.id and one.kernel is other.kernel for other in stage_list.stages())
    return Job(
        name=one.id,
        stage=one.id if registered else "",
        problem=problem,
        config=one.config(problem) if registered and one.supports(problem) else None,
        pickled=b"" if registered else process.pickled(one.kernel_for(problem)),
        arguments=types_of(one, problem),
        threads=how.threads,
        shared_bytes=how.shared_bytes,
        notes=() if one.supports(problem) else ("not made for this problem: another stage's kernel runs it",),
        options=one.options_for(problem) if registered and one.supports(problem) else (),
    )


def _argument(value: Any) -> Any:
    """The Numba type of an example of an argument, or one given as such."""
    import numba
    from numba.np.numpy_support import from_dtype

    value = getattr(value, "storage", value)  # a simulated device array's data
    if isinstance(value, np.ndarray) and value.dtype.names is None:
        layout = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else "A"
        return numba.types.Array(from_dtype(value.dtype), value.ndim, layout)
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return numba.typeof(value)
    kind = value if isinstance(value, numba.types.Type) else getattr(value, "_numba_type_", None)
    if kind is None:
        raise InspectError(f"{value!r} is no example of an argument: give a number, an array, or a Numba type")
    return kind


# --- the way to the compiler's process and back ----------------------------------------------------------------------

_results: dict[str, dict[str, Any]] = {}


def _key(job: Job, cc: tuple[int, int]) -> str:
    digest = hashlib.sha256(
        repr((job.stage, job.problem, job.config, job.options, job.arguments, cc, gpus.at_hand())).encode()
    )
    digest.update(job.pickled)
    if job.stage:  # the other process reads the stage's file, and its parts, as they stand now
        for file in sorted((Path(__file__).parents[1] / "kernels").rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _compile(jobs: Sequence[Job], cc: tuple[int, int], origin: str) -> list[Compiled | str]:
    """The result of each job, or why there is none. All that is not known yet goes to one process."""
    keys = [_key(job, cc) for job in jobs]
    new = {key: job for key, job in zip(keys, jobs, strict=True) if key not in _results}
    answers = dict(zip(new, _ask(list(new.values()), cc), strict=True)) if new else {}
    answers |= {key: _results[key] for key in keys if key in _results}
    for key, answer in answers.items():
        if "error" not in answer:
            _results.pop(key, None)
            _results[key] = answer  # the youngest is last
    while len(_results) > KEPT:
        del _results[next(iter(_results))]
    return [_result(job, answers[key], cc, origin) for key, job in zip(keys, jobs, strict=True)]


def _ask(jobs: Sequence[Job], cc: tuple[int, int]) -> list[dict[str, Any]]:
    """Has a process of its own compile them: for each {"log", "ptx", "cubin", "compiler"} or {"error"}."""
    if why := missing():
        raise NoCompilerError(why)
    answers, ended = process.answers(process.start(_answer, cc, jobs), SECONDS * len(jobs))
    if len(answers) < len(jobs):
        raise InspectError(f"the compiler's process {ended}")
    return answers


def _answer(job: Job, cc: tuple[int, int]) -> dict[str, Any]:
    """One item of what `_ask` gives, made in that process."""
    try:
        library = process.compiled(job).library
        wanted = library._ensure_cc(None)  # as for a launch: (9, 0) becomes (9, 0, "a")
        cubin = bytes(library.get_cubin(wanted).code)
        ptx = library.get_lto_ptx(wanted) if library._lto else library.get_asm_str(wanted)
        text = ptx.rstrip("\0\n") + "\n"
        return {"log": library.get_linkerinfo(wanted), "ptx": text, "cubin": cubin, "compiler": process.compiler()}
    except Exception as error:  # each library on the way has errors of its own
        return {"error": process.explain(str(error) or type(error).__name__, cc)}


# --- reading what the tools say ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """ptxas' words on a kernel: its name, registers, bytes spilled and bytes of stack of a thread."""

    entry: str
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int


_FRAME = re.compile(
    r"Function properties for '?([\w$.]+)'?\s*\n"
    r"[^\n]*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)


def parse_log(log: str) -> Usage:
    """Reads ptxas' verbose log, the linker's lines around it left aside.

    Spills are summed over the kernel and the functions that it calls. stack: of the kernel with the deepest chain of
    calls, where ptxas knows it. Raises InspectError for a log that tells of no kernel.
    """
    entries = re.findall(r"ptxas info\s*: Compiling entry function '([^']+)'", log)
    used = re.findall(r"ptxas info\s*: Used (\d+) registers(.*)", log)
    if len(entries) != 1 or len(used) != 1:
        raise InspectError(f"the compiler's log tells of {len(entries)} kernels, not of one:\n{log.strip()[-500:]}")
    frames = _FRAME.findall(log)
    own = [int(frame) for name, frame, _, _ in frames if name == entries[0]]
    if not own:
        raise InspectError(f"the compiler's log has no spills of {entries[0]}:\n{log.strip()[-500:]}")
    deepest = re.search(r"(\d+) bytes cumulative stack size", used[0][1])
    return Usage(
        entry=entries[0],
        registers=int(used[0][0]),
        spill_stores=sum(int(stores) for _, _, stores, _ in frames),
        spill_loads=sum(int(loads) for _, _, _, loads in frames),
        stack=max(*own, int(deepest[1]) if deepest else 0),
    )


def float64_instructions(ptx: str) -> int:
    """PTX instructions that name the type .f64: arithmetic, conversions, loads, moves; not declarations."""
    return len(re.findall(r"(?m)^\s*(?:@!?%\w+\s+)?[a-z][\w.]*\.f64\b", ptx))


@dataclass(frozen=True)
class LineAccesses:
    """Accesses to global and shared memory that one source line has in the compiled code: instructions, not runs.

    looped: how many of them stand inside a loop of the compiled code.
    """

    loads: int = 0
    stores: int = 0
    atomics: int = 0
    looped: int = 0


def accesses(
    kernel: Any, arguments: Sequence[Any], cc: tuple[int, int] | None = None, block: int | Sequence[int] | None = None
) -> dict[tuple[str, int], LineAccesses]:
    """Accesses that the compiler left of each line, as `dwlab.simt.xray(…, compiled=accesses)` shows them.

    kernel: made with lineinfo=True. arguments: examples. Takes a second; needs no GPU. Raises as `compile` does.
    """
    return accesses_by_line(compile(kernel, signature=arguments, cc=cc, block=block).ptx)


def accesses_by_line(ptx: str) -> dict[tuple[str, int], LineAccesses]:
    """(file's name without folders, line) -> its accesses, of PTX that was compiled with lineinfo=True.

    What the compiler made of several lines, or took out of a loop, may be on line 0.
    """
    files = {int(number): Path(path).name for number, path in re.findall(r'(?m)^\s*\.file\s+(\d+)\s+"([^"]+)"', ptx)}
    labels, backward, found = {}, [], []
    place = ("", 0)
    for at, line in enumerate(ptx.splitlines()):
        line = line.strip()
        if located := re.match(r"\.loc\s+(\d+)\s+(\d+)", line):
            place = (files.get(int(located[1]), ""), int(located[2]))
        elif label := re.match(r"(\$?\w+):$", line):
            labels[label[1]] = at
        elif jump := re.match(r"(?:@!?%\w+\s+)?bra(?:\.uni)?\s+(\$?\w+);", line):
            if jump[1] in labels:
                backward.append((labels[jump[1]], at))
        elif access := re.match(r"(?:@!?%\w+\s+)?(ld|st|atom|red)\.(?!param|local|const)[\w:.]+", line):
            found.append((at, place, {"ld": "loads", "st": "stores"}.get(access[1], "atomics")))
        elif re.match(r"cp\.async\.c[ag]", line):  # from global memory to shared
            found += [(at, place, "loads"), (at, place, "stores")]
    counts: dict[tuple[str, int], Counter[str]] = {}
    for at, where, kind in found:
        counts.setdefault(where, Counter())[kind] += 1
        if any(first <= at <= last for first, last in backward):
            counts[where]["looped"] += 1
    return {where: LineAccesses(**count) for where, count in counts.items()}


def sections(elf: bytes) -> dict[str, int]:
    """Section name -> bytes, of a 64-bit little-endian ELF file such as a cubin. InspectError for any other file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise InspectError(f"this is no cubin: it begins with {elf[:6]!r}")
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    # Each header: name, type, flags, address, offset, size, …
    heads = [struct.unpack_from("<IIQQQQ", elf, start + size * i) for i in range(count)]
    table = heads[names][4]
    return {elf[table + head[0] : elf.index(b"\0", table + head[0])].decode(): head[5] for head in heads}


def static_shared(sizes: dict[str, int], entry: str, cc: tuple[int, int]) -> int:
    """Bytes of a kernel's static shared memory, of its cubin's section sizes.

    From 9.0 on the section of a kernel that has shared arrays begins with the 1 KiB that the driver keeps for itself.
    """
    size = sizes.get(f".nv.shared.{entry}", 0)
    return size - occupancy_rules.KIB if size and cc >= (9, 0) else size


_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?\w+)\s+)?([A-Z][A-Z0-9_]*(?:\.[\w.]+)?)")


def clean_sass(text: str) -> str:
    """The instructions with their addresses and the labels of nvdisasm's text, without the padding at the end."""
    lines = []
    code = False
    for line in text.splitlines():
        if re.match(r"\s*\.section\s", line):
            code = ".text" in line
        elif code and (_INSTRUCTION.match(line) or re.match(r"^\.L\w+:", line)):
            lines.append(line.rstrip())
    while lines and re.search(r"\*/\s+NOP\b|^\.L\w+:$", lines[-1]):
        lines.pop()
    return "\n".join(lines)


def opcodes(sass: str) -> dict[str, int]:
    """SASS opcode with its modifiers -> how often it stands there, most frequent first, then by name.

    Left out: NOP, and what !PT keeps from ever running (ptxas puts such loads before asynchronous copies).
    """
    lines = [match for line in sass.splitlines() if (match := _INSTRUCTION.match(line))]
    found = Counter(opcode for predicate, opcode in (line.groups() for line in lines) if predicate != "!PT")
    found.pop("NOP", None)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def nvdisasm() -> str | None:
    """The path of NVIDIA's disassembler: of its wheel, below CUDA_HOME or CUDA_PATH, on the PATH; None if nowhere."""
    name = "nvdisasm.exe" if os.name == "nt" else "nvdisasm"
    return next((str(path) for path in _places(name) if path.is_file() and os.access(path, os.X_OK)), None)


def _places(name: str) -> Iterator[Path]:
    try:
        files = importlib.metadata.files("nvidia-cuda-nvdisasm") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    yield from (Path(file.locate()) for file in files if file.name == name)
    homes = (os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH"))
    yield from (Path(home, "bin", name) for home in homes if home)
    found = shutil.which(name)
    if found:
        yield Path(found)


def _disassembled(cubin: bytes) -> tuple[str | None, str]:
    """(SASS, "") or (None, why)."""
    tool = nvdisasm()
    if tool is None:
        return None, "needs NVIDIA's disassembler: pip install nvidia-cuda-nvdisasm"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernel.cubin")  # nvdisasm reads files only
        file.write_bytes(cubin)
        try:
            done = subprocess.run([tool, "-c", file], capture_output=True, text=True, errors="replace", timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, f"{tool} does not run: {error}"
    if done.returncode:
        message = " ".join((done.stderr or done.stdout).replace(str(file), "the file").split())
        return None, f"{tool} cannot read this code: {message}"
    return clean_sass(done.stdout), ""


def _result(job: Job, answer: dict[str, Any], cc: tuple[int, int], origin: str) -> Compiled | str:
    if "error" in answer:
        return answer["error"]
    if "sass" not in answer or (answer["sass"] is None and nvdisasm() is not None):
        answer["sass"], answer["sass_missing"] = _disassembled(answer["cubin"])
    usage = parse_log(answer["log"])
    static = static_shared(sections(answer["cubin"]), usage.entry, cc)
    fits = None
    if job.threads is not None:
        fits = occupancy_rules.occupancy(job.threads, usage.registers, static + job.shared_bytes, cc)
    return Compiled(
        name=job.name,
        problem=str(job.problem or ""),
        cc=cc,
        registers=usage.registers,
        spill_stores=usage.spill_stores,
        spill_loads=usage.spill_loads,
        local_bytes=usage.stack,
        shared_bytes=static,
        dynamic_shared_bytes=job.shared_bytes,
        threads=job.threads,
        occupancy=fits,
        float64_instructions=float64_instructions(answer["ptx"]),
        ptx=answer["ptx"],
        sass=answer["sass"],
        sass_missing=answer["sass_missing"],
        opcodes=opcodes(answer["sass"] or ""),
        compiler=answer["compiler"],
        cc_from=origin,
        notes=job.notes,
    )


# --- text -------------------------------------------------------------------------------------------------------------


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _opcodes(found: dict[str, int]) -> str:
    return ", ".join(f"{name} × {count:,}" for name, count in found.items()) or "none"


def _percent(found: Occupancy) -> str:
    return f"{100 * found.fraction:.0f} %"


def _occupancy(found: Occupancy) -> str:
    if found.exceeded:
        return "does not run: " + " ".join(found.exceeded)
    return (
        f"{_percent(found)}: {found.blocks_per_sm} blocks, {found.warps_per_sm} of {found.max_warps_per_sm} warps "
        f"an SM, limited by {' and '.join(found.limited_by)}"
    )


def _listed(notes: Iterable[str]) -> str:
    """Notes as a list in HTML; "" of none."""
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f"<ul>{items}</ul>" if items else ""


def register(command: commandline.Register) -> None:
    """Adds `inspect`."""
    one = command("inspect", main, "example: python -m dwlab inspect depthwise1d/forward/wide --cc 8.0 --sass")
    one.add_argument("stage", metavar="OP/PATH/STAGE", help=commandline.OWN)
    one.add_argument("--problem", metavar="P", help=f"{commandline.PROBLEMS} (default: paper, a small layer)")
    one.add_argument("--cc", metavar="N.N", help="compute capability (default: this GPU's, without one 9.0)")
    code = one.add_mutually_exclusive_group()
    code.add_argument("--ptx", action="store_true", help="the PTX, after link-time optimization")
    code.add_argument("--sass", action="store_true", help="the GPU's own code (needs nvidia-cuda-nvdisasm)")


def main(options: Any) -> int:
    """Compiles a stage and prints registers, spills, shared memory, occupancy, float64 instructions and
    memory access opcodes; or the code. Needs numba-cuda and its compiler, and no GPU.
    For a kernel of your own: FILE.py:KERNEL, where FILE.py has a function example() that returns
    (grid, block, *arguments); in Python dwlab.inspect.compile(kernel, signature=…).
    """
    import json

    if is_own(options.stage):
        if options.problem is not None:
            raise commandline.UserError(commandline.NO_PROBLEM)
        kernel, _, block, args, *_ = own_kernel(options.stage)
        found = compile(kernel, signature=args, block=block, cc=options.cc)
    else:
        stage = stage_list.stage(whole_id(options.stage))
        found = compile(stage.id, problem=problem_of(stage, options.problem, "paper"), cc=options.cc)
    if options.sass and found.sass is None:
        raise InspectError(f"SASS {found.sass_missing}")
    if options.json:
        text = {name: getattr(found, name) for name in ("ptx", "sass") if getattr(options, name)}
        print(json.dumps(found.to_dict() | text, indent=1, ensure_ascii=False))
    elif options.ptx or options.sass:
        print(found.ptx if options.ptx else found.sass)
    else:
        print("\n".join(textwrap.fill(line, 120, subsequent_indent=" " * 19) for line in str(found).splitlines()))
    return 0
