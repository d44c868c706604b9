"""compiler.inspect: stages held free of spills and float64, leaks caught, and the readers of what the tools print.

Readers and refusals are tested everywhere, on text in the tools' formats; what needs the compiler is skipped where
numba-cuda is not installed, and the skip says so.
"""

import importlib.util
import json
import os
import pickle
import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from compiler import needs_compiler
from numba import float32

from dwlab import __main__ as cli
from dwlab import cuda
from dwlab.compiler import inspect
from dwlab.compiler.inspect import InspectError, NoCompilerError
from dwlab.gpu import driver, occupancy, target
from dwlab.kernels import registry
from dwlab.kernels.parts import ptx
from dwlab.kernels.registry import StageError
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems import PAPER, SMALL, DepthwiseConv1d, layers
from dwlab.training import small_kernels

WIDE = "depthwise1d/forward/wide"
ODD = DepthwiseConv1d(3, 5, 61, 31, "same")
ROW = np.zeros(64, np.float32)

# What nvJitLink says with -verbose after link-time optimization: a kernel with a function that was not inlined.
LOG = """INFO: NVVM70 LTOIR Container created (8200 bytes)
ptxas warning : Stack size for entry function '_ZN4mine6kernelE' cannot be statically determined
ptxas info    : 3 bytes gmem
ptxas info    : Compiling entry function '_ZN4mine6kernelE' for 'sm_80'
ptxas info    : Function properties for _ZN4mine6kernelE
ptxas         .     16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 48 bytes cumulative stack size, 4608 bytes smem, 472 bytes cmem[0]
ptxas info    : Compile time = 4.680 ms
ptxas info    : Function properties for _ZN4mine6helperE
ptxas         .     24 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
"""

PTX = """.version 9.5
.target sm_80
.visible .entry _ZN4mine6kernelE(
	.param .f64 _ZN4mine6kernelE_param_0
)
{
	.reg .pred 	%p<2>;
	.reg .f64 	%fd<35>;
	ld.param.f64 	%fd1, [_ZN4mine6kernelE_param_0];
	cvt.f64.f32 	%fd2, %f1;
	@%p1 bra 	$L__BB0_2;
	@!%p1 fma.rn.f64 	%fd3, %fd1, %fd2, %fd3;
	fma.rn.f32 	%f3, %f1, %f2, %f3;
	// cvt.f64.f32 in a comment
	st.global.f32 	[%rd1], %f3;
	ret;
}
"""

SASS = """
	.target	sm_80
//--------------------- .text._ZN4mine6kernelE --------------------------
	.section	.text._ZN4mine6kernelE,"ax",@progbits
	.sectioninfo	@"SHI_REGISTERS=40"
	.align	128
        .global         _ZN4mine6kernelE
_ZN4mine6kernelE:
.text._ZN4mine6kernelE:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/               @P0 EXIT ;
        /*0020*/              @!PT LDS RZ, [RZ] ;
        /*0030*/              @!P1 LDGSTS.E.BYPASS.128 [R61], desc[UR6][R36.64] ;
.L_x_1:
        /*0040*/                   LDG.E.128 R4, desc[UR6][R2.64] ;
        /*0050*/                   FFMA R8, R4, R5, R8 ;
        /*0060*/                   FFMA R8, R6, R7, R8 ;
        /*0070*/            @!UP0  UIADD3 UR4, UR4, 0x1, URZ ;
        /*0080*/                   LDS.128 R4, [R9] ;
        /*0090*/                   STL [R1], R4 ;
        /*00a0*/                   NOP ;
        /*00b0*/               @PT STG.E desc[UR6][R2.64], R8 ;
        /*00c0*/                   EXIT ;
.L_x_2:
        /*00d0*/                   BRA `(.L_x_2);
        /*00e0*/                   NOP;
        /*00f0*/                   NOP;
.L_x_3:

	.section	.debug_frame,"",@progbits
        /*0000*/ 	.byte	0xff, 0xff, 0xff, 0xff
"""


def elf(**sizes):
    """The frame of a 64-bit ELF file whose sections, each with a full stop before its name, have these sizes."""
    names = ["", *(f".{name}" for name in sizes), ".shstrtab"]
    strings, places = b"", []
    for name in names:
        places.append(len(strings))
        strings += name.encode() + b"\0"
    headers = 64 + len(strings)
    body = [0, *sizes.values(), len(strings)]
    rows = b"".join(
        struct.pack("<IIQQQQIIQQ", place, 1, 0, 0, 64, size, 0, 0, 1, 0)
        for place, size in zip(places, body, strict=True)
    )
    head = b"\x7fELF\x02\x01\x01".ljust(40, b"\0") + struct.pack("<QIHHHHHH", headers, 0, 64, 0, 0, 64, len(names), 0)
    head = head[:0x3E] + struct.pack("<H", len(names) - 1)
    return head + strings + rows


def answer(**changes):
    """What the compiler's process would answer for a kernel."""
    cubin = elf(**{"nv.shared._ZN4mine6kernelE": 4608, "text._ZN4mine6kernelE": 256})
    return {"log": LOG, "ptx": PTX, "cubin": cubin, "compiler": "a compiler"} | changes


@pytest.fixture
def canned(monkeypatch):
    """A compiler that answers from the text above, a disassembler that prints it, and no results kept."""
    asked = []
    monkeypatch.setattr(inspect, "_results", type(inspect._results)())
    monkeypatch.setattr(inspect, "_ask", lambda jobs, cc: [asked.append((job, cc)) or answer() for job in jobs])
    monkeypatch.setattr(inspect, "_disassembled", lambda cubin: (inspect.clean_sass(SASS), ""))
    return asked


# --- the readers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "words"),
    [("", "of 0 kernels"), (LOG + LOG, "of 2 kernels"), (LOG.replace("stack frame", "frame"), "no spills of _ZN4mine")],
)
def test_a_log_that_does_not_tell_of_one_kernel_is_refused(log, words):
    with pytest.raises(InspectError, match=words):
        inspect.parse_log(log)


def test_sass_keeps_instructions_and_labels_and_opcodes_leave_out_what_does_nothing():
    lines = inspect.clean_sass(SASS).splitlines()
    assert len(lines) == 14 + 2 and lines[0].endswith("MOV R1, c[0x0][0x28] ;") and lines[-1].endswith("BRA `(.L_x_2);")
    assert inspect.clean_sass("") == ""
    assert inspect.opcodes(inspect.clean_sass(SASS)) == {
        "EXIT": 2, "FFMA": 2, "BRA": 1, "LDG.E.128": 1, "LDGSTS.E.BYPASS.128": 1, "LDS.128": 1, "MOV": 1, "STG.E": 1,
        "STL": 1, "UIADD3": 1,
    }  # fmt: skip
    assert list(inspect.opcodes(inspect.clean_sass(SASS)))[:3] == ["EXIT", "FFMA", "BRA"]


def test_sections_of_a_cubin():
    found = inspect.sections(elf(**{"nv.shared.k": 1424, "text.k": 640}))
    assert (found[".nv.shared.k"], found[".text.k"], len(found)) == (1424, 640, 4)
    assert inspect.static_shared(found, "k", (8, 9)) == 1424
    assert inspect.static_shared(found, "k", (9, 0)) == 400  # without the driver's 1 KiB
    assert inspect.static_shared(found, "other", (9, 0)) == 0
    with pytest.raises(InspectError, match="no cubin: it begins with b'// Gen"):
        inspect.sections(b"// Generated by a compiler")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (
            "nvJitLink error log: ptxas application ptx input, line 47; error   : Feature 'cp.async' requires .target "
            "sm_80 or higher\nptxas fatal   : Ptx assembly aborted due to errors",
            "cp.async, which needs compute capability 8.0 or higher, not 7.5",
        ),
        ("error : Feature 'wgmma' requires .target sm_100a or higher", "10.0 or higher"),
        (
            "ptxas error   : Entry function '_ZN3bigE' uses too much shared data (0x13880 bytes, 0xc000 max)",
            "80,000 bytes a block, and 49,152 is the most",
        ),
        (
            "Failed in cuda mode pipeline\nUntyped global name 'y'",
            "Failed in cuda mode pipeline\nUntyped global name 'y'",
        ),
    ],
)
def test_errors_of_the_tools_are_explained(said, meant):
    assert meant in inspect.process.explain(said, (7, 5))


# --- what is made of it -----------------------------------------------------------------------------------------------


def test_a_result_from_what_the_tools_say(canned):
    found = inspect.compile(WIDE, problem="paper", cc="8.0")
    (job, cc), = canned  # fmt: skip
    assert (job.stage, job.problem, job.pickled, cc) == (WIDE, PAPER, b"", (8, 0))
    assert [(str(one.dtype), one.ndim, one.layout) for one in job.arguments[:3]] == [
        ("float32", d, "C") for d in (3, 2, 3)
    ]
    assert (found.name, found.problem, found.cc, found.cc_from) == (WIDE, str(PAPER), (8, 0), "requested")
    assert (found.registers, found.spill_stores, found.spill_loads, found.local_bytes) == (40, 20, 24, 48)
    assert (found.shared_bytes, found.dynamic_shared_bytes, found.threads) == (4608, 0, 32)
    assert found.occupancy == occupancy.occupancy(32, 40, 4608, "8.0")
    assert found.ffma == 2 and inspect.float64_instructions(PTX.replace("f64", "f32")) == 0
    assert found.float64_instructions == 3  # a load, a conversion, an fma under a predicate
    assert found.accesses("global") == {"LDG.E.128": 1, "LDGSTS.E.BYPASS.128": 1, "STG.E": 1}
    others = [found.accesses(space) for space in ("shared", "local", "generic")]
    assert others == [{"LDS.128": 1}, {"STL": 1}, {}]
    with pytest.raises(InspectError, match="no memory 'texture': give one of global"):
        found.accesses("texture")


def test_a_result_is_kept_until_its_question_changes(canned):
    for _ in range(2):
        inspect.compile(WIDE, problem="small", cc="8.0")
    assert len(canned) == 1
    inspect.compile(WIDE, problem="small", cc="9.0")
    inspect.compile(WIDE, problem="paper", cc="9.0")
    inspect.compile("depthwise1d/forward/naive", problem="paper", cc="9.0")
    assert len(canned) == 4


def test_a_table_has_a_row_a_stage_and_the_reason_for_each_that_has_none(canned, monkeypatch):
    def some(jobs, cc):
        return [{"error": "it is too new"} if job.stage == WIDE else answer() for job in jobs]

    monkeypatch.setattr(inspect, "_ask", some)
    forward = registry.stages("depthwise1d", "forward")
    found = inspect.table(forward, ODD, "7.5")
    assert [one.name for one in found.rows] == [one.id for one in forward if one.id != WIDE]
    assert found.refused == {WIDE: "it is too new"}
    text = str(found).splitlines()
    assert text[0] == f"{ODD}, compiled for 7.5 (requested) by a compiler"
    assert text[1].split()[:2] == ["stage", "registers"] and len(text) >= 3 + len(forward)
    assert f"{WIDE} does not compile: it is too new" in text
    assert f"<li>{WIDE} does not compile: it is too new</li>" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["refused"] == found.refused
    assert [one.name for one in inspect.table("depthwise1d/forward/naive", "small", "8.0").rows] == [forward[0].id]
    assert len(inspect.table(problem="small", cc="8.0").rows) == len(registry.stages("depthwise1d")) - 1


# --- what cannot be answered ------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def twice(value):
    return value * float32(2)


@cuda.jit
def doubled(x):
    x[cuda.grid(1)] = twice(x[cuda.grid(1)])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (["depthwise1d/forward/wid"], {"problem": "paper"}, StageError, "The nearest is 'depthwise1d/forward/wide'"),
        ([WIDE], {}, InspectError, "needs a problem: problem='paper'"),
        ([WIDE], {"problem": "paper", "cc": "9.9"}, InspectError, "'9.9' is not in the table; known: 6.0"),
        ([WIDE], {"problem": "paper", "block": 32}, InspectError, "knows its signature and launch"),
        ([doubled], {}, InspectError, "doubled needs a signature: an example of each argument"),
        ([doubled], {"signature": ("x",)}, InspectError, "'x' is no example of an argument"),
        ([doubled], {"signature": (ROW,), "block": (32, 0)}, InspectError, "1 thread and 0 bytes are the least"),
        ([doubled], {"signature": (ROW,), "shared_bytes": -1}, InspectError, "shared_bytes=-1"),
        ([twice], {"signature": (1,)}, InspectError, "twice is a device function: compile a kernel that calls it"),
        ([3], {"signature": (1,)}, InspectError, "not int 3"),
    ],
)
def test_a_question_without_a_sense_is_refused(canned, arguments, options, error, words):
    with pytest.raises(error, match=re.escape(words)):
        inspect.compile(*arguments, **options)
    assert canned == []


def test_the_compute_capability_is_the_gpus_or_else_nine(canned, monkeypatch):
    monkeypatch.setattr(target, "mode", "simulated")
    assert "compiled for 9.0 (the default without a GPU)" in str(inspect.compile(WIDE, problem="small"))
    monkeypatch.setattr(target, "mode", "gpu")
    device = SimpleNamespace(compute_capability=(8, 9))
    monkeypatch.setattr(inspect.target, "cuda", SimpleNamespace(get_current_device=lambda: device))
    assert "compiled for 8.9 (this GPU's)" in str(inspect.compile(WIDE, problem="small"))
    assert "compiled for 8.9 (this GPU's)" in str(inspect.table([WIDE], "small"))


def test_without_numba_cuda_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(driver, "query", lambda: SimpleNamespace(toolkit=None))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(inspect, "_results", {})
    with pytest.raises(
        NoCompilerError, match=r"not installed. No GPU is needed for it: .*pip install -e '\.\[gpu-cu13\]'"
    ):
        inspect.compile(WIDE, problem="paper", cc="9.0")
    monkeypatch.setattr(driver, "query", lambda: SimpleNamespace(toolkit=12))
    assert "pip install -e '.[gpu-cu12]'" in inspect.missing()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "no builds for macOS: use Linux or Windows (a GPU is not needed)" in inspect.missing()


@pytest.mark.parametrize(
    ("done", "words"),
    [
        ("import sys; print('a\\nSegmentation fault', file=sys.stderr); sys.exit(3)", "status 3: Segmentation fault"),
        ("raise SystemExit(1)", "status 1: no message"),
        (f"import sys; sys.stdout.buffer.write({pickle.dumps(NoCompilerError('no NVVM'))!r})", "no NVVM"),
        ("import time; time.sleep(60)", "no answer within 1 s"),
    ],
)
def test_a_compiler_that_breaks_is_one_error(monkeypatch, done, words):
    process = subprocess.Popen([sys.executable, "-c", done], stdin=-1, stdout=-1, stderr=-1)
    monkeypatch.setattr(inspect, "missing", lambda: "")
    monkeypatch.setattr(inspect, "SECONDS", 1 if "sleep" in done else 60)
    monkeypatch.setattr(inspect.process, "start", lambda *what: process)
    monkeypatch.setattr(inspect, "_results", {})
    with pytest.raises(InspectError, match=words):
        inspect.compile(WIDE, problem="paper", cc="9.0")


@needs_compiler
def test_a_kernel_that_was_compiled_before_is_compiled_again(monkeypatch):
    """Beside a GPU there is the driver's cache, and of what comes from there ptxas' log does not tell."""
    found = []
    for _ in range(2):
        monkeypatch.setattr(inspect, "_results", type(inspect._results)())
        found.append(inspect.compile(WIDE, problem="paper", cc="9.0").registers)
    assert found[0] == found[1] > 0
    code = (
        "from dwlab.compiler.process import stand_in; stand_in((9, 0)); from numba.cuda.cudadrv import driver; "
        "made = driver._Linker(cc=(9, 0))._get_linker_options(ptx=False); print(made.arch, made.verbose, made.no_cache)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["sm_90", "True", "True"]


# --- with the compiler ------------------------------------------------------------------------------------------------


CASES = [(problem, cc) for problem in (PAPER, ODD) for cc in ("8.0", "9.0")]


def all_stages(case):
    """Every stage in a case, by name; a process of the compiler's for each core, 8 at most."""
    stages, count = registry.stages("depthwise1d"), min(8, os.cpu_count() or 1)
    with ThreadPoolExecutor(count) as pool:
        tables = list(pool.map(lambda i: inspect.table(stages[i::count], *case), range(count)))
    found = {row.name: row for one in tables for row in one.rows}
    return [found[one.id] for one in stages]  # none was refused


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_no_stage_spills_and_only_naive_computes_in_float64(case):
    rows = all_stages(case)
    held = {one.name: (one.spill_stores, one.spill_loads, one.local_bytes) for one in rows}
    assert {name: bytes for name, bytes in held.items() if bytes != (0, 0, 0)} == {}
    leaks = {one.name for one in rows if one.float64_instructions}
    # The paper's naive kernels add up in Numba's float64, which lesson 10 shows.
    assert leaks == {f"depthwise1d/{path}/naive" for path in ("forward", "input_grad", "weight_grad")}
    for one in rows:
        assert one.occupancy.blocks_per_sm > 0, one.name
        if one.sass is not None:
            doubles = [name for name in one.opcodes if re.match(r"D(ADD|MUL|FMA|SETP|MNMX|MMA)|.*\.F64", name)]
            assert bool(doubles) == bool(one.float64_instructions), (one.name, doubles)
            assert one.accesses("global") and not one.accesses("local") and not one.accesses("generic"), one.name


LAYERS = """
depthwise2d/forward/registers N=1 C=96 H=28 W=28 K=5 NHWC float16 bias
depthwise2d/forward/planes N=1 C=96 H=28 W=28 K=3 NCHW bias relu6 residual
depthwise2d/forward/planes N=1 C=96 H=28 W=28 K=5 stride 2 NCHW float16
depthwise2d/forward/toeplitz N=32 C=128 H=56 W=56 K=31 NCHW float16
depthwise2d/forward/blocked N=32 C=128 H=56 W=56 K=31 NCHW bias
depthwise2d/forward/blocked N=1 C=2 H=20 W=20 K=63 NCHW
depthwise2d/forward/int8 N=1 C=96 H=28 W=28 K=3 NHWC int8 bias relu zero_x=3 zero_y=-7
depthwise2d/forward/columns N=32 C=128 H=28 W=28 K=3 NHWC float16 bias relu6
depthwise2d/forward/columns N=32 C=64 H=31 W=31 K=3 NHWC bias relu6 residual
depthwise2d/forward/columns N=1 C=64 H=28 W=28 K=7 NHWC bias
depthwise2d/forward/columns N=1 C=96 H=28 W=28 K=3 stride 2 NHWC float16 bias relu6
pointwise/forward/split N=1 C=960 F=160 H=7 W=7 NHWC float16 bias relu6
pointwise/forward/split N=1 C=1024 F=256 H=7 W=7 NHWC bias relu6
pointwise/forward/split N=1 C=2048 F=512 H=7 W=7 NHWC bias relu6
pointwise/forward/tensor N=32 C=32 F=192 H=28 W=28 NHWC float16 bias relu6
pointwise/forward/tensor N=32 C=728 F=728 H=14 W=14 NHWC bias relu
pointwise/forward/tensor N=32 C=128 F=128 H=56 W=56 NHWC bias relu
pointwise/forward/dp4a N=1 C=64 F=64 H=8 W=8 NHWC int8 bias relu zero_x=-128
pointwise/forward/int8 N=1 C=256 F=256 H=7 W=7 NHWC int8 bias relu zero_x=-128
pointwise/forward/int8 N=1 C=64 F=128 H=56 W=56 NHWC int8 bias relu zero_x=-128 zero_y=-128
pointwise/forward/int8 N=32 C=384 F=64 H=14 W=14 NHWC int8 bias residual m_r=0.7
pointwise/forward/int8 N=32 C=728 F=728 H=14 W=14 NHWC int8 bias residual zero_x=-128 m_r=0.7
fused/dwpw/int8 N=1 C=64 H=14 W=14 K=3 NHWC int8 bias zero_x=3 -> N=1 C=64 F=64 H=14 W=14 NHWC int8 bias
fused/dwpw/int8 N=32 C=728 H=14 W=14 K=3 NHWC int8 relu zero_x=3 zero_y=-128 -> \
                N=32 C=728 F=728 H=14 W=14 NHWC int8 bias zero_x=-128
fused/pwdw/int8 N=1 C=96 F=96 H=14 W=14 NHWC int8 relu zero_y=-128 -> \
                N=1 C=96 H=14 W=14 K=3 NHWC int8 bias residual zero_x=-128 m_r=0.7
fused/pwpw/int8 N=1 C=96 F=384 H=14 W=14 NHWC int8 relu zero_y=-128 -> \
                N=1 C=384 F=96 H=14 W=14 NHWC int8 bias residual zero_x=-128 m_r=0.7
sparse/forward/tensor N=8 C=768 F=768 H=32 W=16 NHWC float16 bias 2:4
sparse/forward/tensor N=8 C=768 F=768 H=32 W=16 NHWC float16 bias 64:2:16
sparse/forward/rows N=8 C=768 F=768 H=32 W=16 NCHW float16 bias 2:4
sparse/forward/rows N=8 C=768 F=768 H=32 W=16 NCHW float16 bias 64:2:16
"""
"""Stage and layer: small ones, and such as get the largest tiles of networks."""
OPCODES = {"dp4a": "IDP.4A", "depthwise2d/forward/int8": "IDP.4A", "int8": "IMMA.16832.S8"}


@needs_compiler
@pytest.mark.family(0.05, by=("id",))
@pytest.mark.parametrize(("id", "text"), [line.split(maxsplit=1) for line in LAYERS.strip().splitlines()])
def test_no_stage_of_layers_spills_or_computes_in_float64(id, text):
    problem, one, name = layers.problem(text), registry.stage(id), id.rpartition("/")[2]
    found = inspect.compile(one, problem=problem, cc="9.0")
    assert (found.spill_stores, found.spill_loads, found.local_bytes, found.float64_instructions) == (0, 0, 0, 0)
    assert found.occupancy.blocks_per_sm >= 1 and not found.accesses("local")
    if opcode := OPCODES.get(id, OPCODES.get(name)):
        assert found.sass is None or any(one.startswith(opcode) for one in found.opcodes)
    assert one.op != "sparse" or "mma.sp::ordered_metadata.sync.aligned.m16n8k32" in found.ptx
    if name in ("planes", "columns"):
        assert not found.accesses("generic")
    accesses = found.accesses("global")
    if name == "planes":
        assert sum(count for opcode, count in accesses.items() if "128" in opcode) >= 2
    if name == "columns":  # two channels of a thread in one access, and all multiply-adds written out
        loads = [opcode for opcode in accesses if opcode.startswith(("LDG", "STG"))]
        assert loads and all((".64" in opcode) == (problem.dtype == "float32") for opcode in loads)
        tile = one.config(problem)
        assert not found.accesses("shared") and found.ffma >= tile.thread_n * tile.thread_m * 2 * problem.K**2
    if id == "pointwise/forward/tensor" and problem.dtype == "float16":  # the chosen tile counts on so many
        assert found.registers <= one.tiles.resources(problem.kernel_key, one.config(problem)).registers


@cuda.jit
def looked_up(x, y):
    table = cuda.local.array(500, float32)
    for i in range(x.size):
        table[int(x[i])] = x[i]
    y[0] = table[int(x[3])]


@cuda.jit(max_registers=24)
def crowded(x, y):
    sums = cuda.local.array(48, float32)
    t = cuda.threadIdx.x
    for i in range(8):
        sums[i], sums[i + 8], sums[i + 16] = x[t + i], x[t + i + 8], x[t + i + 16]
        sums[i + 24], sums[i + 32], sums[i + 40] = x[t + i + 24], x[t + i + 32], x[t + i + 40]
    cuda.syncthreads()
    for i in range(8):
        x[t + i], x[t + i + 8], x[t + i + 16] = sums[47 - i], sums[39 - i], sums[31 - i]
        x[t + i + 24], x[t + i + 32], x[t + i + 40] = sums[23 - i], sums[15 - i], sums[7 - i]
    y[t] = sums[0]


@needs_compiler
def test_local_memory_and_spills_are_caught():
    found = inspect.compile(looked_up, signature=(ROW, ROW), cc="9.0", block=64)
    assert found.local_bytes == 500 * 4 and (found.spill_stores, found.spill_loads) == (0, 0)
    if found.sass is not None:
        assert {name.split(".")[0] for name in found.accesses("local")} == {"LDL", "STL"}
    found = inspect.compile(crowded, signature=(ROW, ROW), cc="9.0", block=64)  # 48 values in 24 registers
    assert found.registers <= 24 and found.spill_stores > 0 and found.spill_loads > 0
    assert found.local_bytes >= found.spill_stores


@cuda.jit
def shared(x, y):
    tile = cuda.shared.array(300, float32)
    rest = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    tile[t], rest[t] = x[t], x[t + 1]
    cuda.syncthreads()
    y[t] = tile[t ^ 1] + rest[t ^ 2]


@needs_compiler
@pytest.mark.parametrize(("cc", "signature"), [("8.0", (ROW, ROW)), ("9.0", "void(float32[::1], float32[::1])")])
def test_shared_memory_and_occupancy(cc, signature):
    found = inspect.compile(shared, signature=signature, cc=cc, block=(32, 2), shared_bytes=256)
    assert (found.shared_bytes, found.dynamic_shared_bytes, found.threads) == (1200, 256, 64)
    assert found.occupancy == occupancy.occupancy(64, found.registers, 1456, cc)
    (raw,) = inspect._ask([inspect._job(shared, None, (ROW, ROW), None, 0)], found.cc)
    assert "1200 bytes smem" in raw["log"]  # ptxas' own count


@needs_compiler
def test_asynchronous_copies_need_ampere():
    with pytest.raises(InspectError, match=f"^{WIDE} does not compile for 7.5: .* needs compute capability 8.0"):
        inspect.compile(WIDE, problem="small", cc="7.5")
    found = inspect.table(["depthwise1d/forward/naive", WIDE], "small", "7.5")
    assert [one.name for one in found.rows] == ["depthwise1d/forward/naive"] and list(found.refused) == [WIDE]
    assert ".target sm_75" in found.rows[0].ptx


@needs_compiler
def test_a_kernel_that_numba_refuses_says_why():
    @cuda.jit
    def lost(x):
        x[0] = nowhere  # noqa: F821

    with pytest.raises(InspectError, match="(?s)lost does not compile for 9.0: .*nowhere"):
        inspect.compile(lost, signature=(ROW,), cc="9.0")
    with pytest.raises(InspectError, match="2 arguments"):
        inspect.compile(looked_up, signature=(ROW,), cc="9.0")
    with pytest.raises(InspectError, match="float3"):
        inspect.compile(looked_up, signature="void(float3[:], float3[:])", cc="9.0")


FACTOR = 3


@cuda.jit("float32(float32)", device=True)
def third(value):  # its signature makes a float32 of what comes in
    return value / float32(3)


@cuda.jit(device=True, forceinline=True)
def tripled(value):
    return third(value) * float32(FACTOR)


@needs_compiler
def test_a_kernel_travels_with_all_that_it_refers_to():
    offset = 5

    @cuda.jit
    def kernel(x, y):
        a, b, c, d = ptx.load4(x, cuda.threadIdx.x * 4)
        ptx.store4(y, cuda.threadIdx.x * 4, tripled(a), b, c, d + float32(offset))

    found = inspect.compile(kernel, signature=(ROW, ROW), cc="8.0", block=16)
    assert ".v4.f32" in found.ptx and "0f40400000" in found.ptx.lower()  # 3 as a float32
    assert "0f40a00000" in found.ptx.lower() and found.float64_instructions == 0  # 5
    if found.sass is not None:
        assert found.accesses("global") == {"LDG.E.128": 1, "STG.E.128": 1}


# The same kernel out of gpu mode, as numba.cuda's own, on a machine that need not have a GPU.
IN_GPU_MODE = """
import json, sys
from numba import cuda
from dwlab import target
from dwlab.gpu import target as deciding
target.cuda, deciding.mode = cuda, "gpu"
from dwlab.kernels import registry
from dwlab.compiler import inspect
from dwlab.kernels.parts import ptx
from dwlab.problems import SMALL
one = registry.stage(sys.argv[1])
kernel = one.kernel_for(SMALL)
assert type(kernel).__name__ == "CUDADispatcher" and "Intrinsic" in type(ptx.load4).__name__
for stage in (one, one.with_kernel(kernel)):
    print(json.dumps(inspect.compile(stage, problem=SMALL, cc="8.0").to_dict(code=True)))
"""


@needs_compiler
@pytest.mark.parametrize("name", [WIDE, "depthwise1d/weight_grad/shared"])
def test_a_kernel_is_the_same_out_of_either_mode_and_on_either_way(name):
    def plain(text):
        return re.sub(r"_ZN\w+", "NAME", text)  # a mangled name has a running number

    one = registry.stage(name)
    by_name = inspect.compile(one, problem=SMALL, cc="8.0")
    by_value = inspect.compile(one.with_kernel(one.kernel_for(SMALL)), problem=SMALL, cc="8.0")
    wanted = plain(json.dumps(by_name.to_dict(code=True)))
    assert plain(json.dumps(by_value.to_dict(code=True))) == wanted
    environment = os.environ | gpus.environment() | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    code = [sys.executable, "-c", IN_GPU_MODE, name]
    done = subprocess.run(code, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    assert [plain(line) for line in done.stdout.splitlines()] == [wanted, wanted]


@needs_compiler
def test_the_command_prints_numbers_and_code(capsys):
    small = ["inspect", "depthwise1d/forward/coalesced", "--problem", "small", "--cc", "8.9"]
    assert cli.main(small) == 0
    text = capsys.readouterr().out
    assert text.startswith("depthwise1d/forward/coalesced on B=4") and "0 bytes stored, 0 bytes loaded" in text
    assert max(map(len, text.splitlines())) <= 120
    assert cli.main([*small, "--json", "--ptx"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["cc"] == "8.9" and data["registers"] > 0 and ".target sm_89" in data["ptx"]
    assert cli.main([*small, "--ptx"]) == 0
    assert capsys.readouterr().out.count(".entry") == 1
    if inspect.nvdisasm():
        assert cli.main([*small, "--sass"]) == 0
        assert "FFMA" in capsys.readouterr().out


@pytest.mark.skipif(target.mode != "gpu", reason=f"needs a GPU, to ask its driver the same: {target.reason}")
@pytest.mark.parametrize("one", registry.stages("depthwise1d"), ids=lambda one: one.id)
def test_the_driver_says_the_same(one):
    arrays = {name: np.zeros(shape, np.float32) for name, shape in SMALL.shapes(one.path).items()}
    one.run(SMALL, arrays)
    kernel, (found,) = one.kernel_for(SMALL), inspect.table([one], SMALL).rows
    assert set(kernel.get_regs_per_thread().values()) == {found.registers}
    assert set(kernel.get_local_mem_per_thread().values()) == {found.local_bytes}


@needs_compiler
def test_every_option_of_a_kernel_reaches_the_compiler():
    y = np.zeros((2, 10), np.float32)

    def made(**options):
        return inspect.compile(small_kernels.softmax(**options), signature=(y, y), block=256)

    plain, capped = made(), made(max_registers=24)
    assert capped.registers <= 24 < plain.registers
    assert len(made(fastmath=True).ptx) < len(plain.ptx)
    if target.mode != "gpu":  # there the decorator of small_kernels has forgotten lto before
        assert made(lto=False).ptx != plain.ptx
