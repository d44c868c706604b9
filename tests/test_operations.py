"""What networks do beside their layers, by kernels of ours: against PyTorch, in every storage type."""

import math
from dataclasses import replace

import numpy as np
import pytest
from small_networks import simulated

torch = pytest.importorskip("torch", reason="networks run with PyTorch: pip install '.[torch]'")

from dwlab import simt  # noqa: E402
from dwlab.gpu import target  # noqa: E402
from dwlab.inference import comparison, with_torch  # noqa: E402
from dwlab.kernels import operations  # noqa: E402
from dwlab.problems.networks import Operation  # noqa: E402
from dwlab.problems.quantisation import Scale  # noqa: E402

DEVICE = "cuda" if target.mode == "gpu" else "cpu"
FLOATS = ("float32", "float16")


def conv(H, W, F=32, K=3, stride=2, padding=1, N=1, **more):
    return Operation("conv2d", N, 3, F, H, W, K, stride, padding, "NHWC", bias=True, **more)


def window(op, C, H, W, K=1, stride=1, padding=0, N=2, **more):
    return Operation(op, N, C, C, H, W, K, stride, padding, "NHWC", **more)


CASES = [
    conv(9, 8), conv(35, 37, activation="relu"), conv(33, 34, padding=0, activation="relu6", N=2), conv(5, 3, F=8),
    conv(9, 8, F=40), conv(21, 20, F=64, K=5, stride=1, padding=2, N=2),
    conv(24, 20, K=5, stride=3, padding=0, activation="gelu"),
    replace(conv(9, 17), C=1), replace(conv(9, 17, stride=1), C=8),
    conv(130, 70, N=15),  # four tiles below each other, of which the last are partly outside
    window("max_pool", 8, 7, 5, 3, 2, 1), window("max_pool", 24, 8, 8, 3, 2, 1, residual=True),
    window("max_pool", 16, 6, 7, 2, 2), window("max_pool", 264, 9, 9, 3, 1, 1, N=1, residual=True),
    window("subsample", 8, 7, 6, stride=2), window("subsample", 520, 5, 5, stride=3, N=1),
    window("relu", 16, 5, 3), window("relu", 2056, 2, 3, N=1),
    window("gelu", 24, 5, 3), window("gelu", 264, 3, 7, N=1, residual=True),
    *(Operation("mean", N, C, C, H, W, layout="NHWC") for N, C, H, W in [(1, 8, 1, 1), (3, 72, 7, 7), (2, 1280, 5, 9)]),
    *(Operation("linear", N, C, F, 1, 1, bias=bias) for N, C, F, bias in
      [(1, 8, 1, True), (4, 1280, 10, True), (2, 264, 17, False), (1, 2048, 9, True)]),
]  # fmt: skip


def name_of(one):
    return f"{one.op}-{one.N}x{one.C}x{one.H}x{one.W}-{one.F}-{one.K}{one.stride}{one.padding}-{one.activation}"


def numbers(shape, seed, low=-3.0, high=3.0):
    return torch.from_numpy(np.random.default_rng(seed).uniform(low, high, shape)).to(DEVICE)


def run(problem, x, y, r=None, w=None, b=None, scales=(None, None, None)):
    """Of tensors (N, C, H, W), as they are stored in the problem's layout."""
    stored = [None if one is None else (one.permute(0, 2, 3, 1) if problem.layout == "NHWC" else one).contiguous()
              for one in (x, y, r)]  # fmt: skip
    operations.starter(problem, stored[0], stored[1], stored[2], w, b, scales)(0)
    if target.mode == "gpu":
        torch.cuda.synchronize()
    return stored[1].permute(0, 3, 1, 2) if problem.layout == "NHWC" else stored[1]


@pytest.mark.family(0.1)  # tests/parts.py
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("problem", CASES, ids=name_of)
def test_floats_are_as_near_to_float64_as_rounding_allows(problem, dtype):
    problem, kind = replace(problem, dtype=dtype), getattr(torch, dtype)
    shape = {"conv2d": (problem.F, problem.C, problem.K, problem.K), "linear": (problem.F, problem.C)}.get(problem.op)
    x = numbers((problem.N, problem.C, problem.H, problem.W), 1).to(kind)
    r = numbers((problem.N, problem.F, problem.P, problem.Q), 2).to(kind) if problem.residual else None
    w = None if shape is None else numbers(shape, 3).to(kind)
    b = numbers((problem.F,), 4).to(kind) if problem.bias else None
    y = torch.full((problem.N, problem.F, problem.P, problem.Q), math.nan, dtype=kind, device=DEVICE)
    assert operations.takes(problem)
    exact = [None if one is None else one.double() for one in (x, w, b, r)]
    wanted, allowed = comparison.bounded(problem, exact[0], torch.zeros_like(exact[0]), *exact[1:])
    off = (run(problem, x, y, r, w, b).double() - wanted).abs()
    assert bool((off <= allowed).all()), float((off / allowed).max())


@simulated
@pytest.mark.parametrize("problem", CASES, ids=name_of)
def test_no_hazard_and_nothing_outside(problem):
    one = replace(problem, dtype="float16", N=1)
    x, y = torch.zeros(one.N, one.H, one.W, one.C).half(), torch.zeros(one.N, one.P, one.Q, one.F).half()
    w = torch.zeros((one.F, one.C, one.K, one.K) if one.op == "conv2d" else (one.F, one.C)).half()
    b = torch.zeros(one.F)
    start = operations.starter(one, x, y, y.clone() if one.residual else None, w, b)
    kernel, how, arguments, _ = start.args
    report = simt.xray(kernel, how.grid, how.block, *arguments)
    assert report.hazards == () and report.totals.global_store_requests


@pytest.mark.family(0.1)
@pytest.mark.parametrize("scale, zero", [(0.15, 0), (0.1, -128)])
@pytest.mark.parametrize("problem", [one for one in CASES if one.op not in ("linear", "mean")], ids=name_of)
def test_int8_is_what_the_numbers_stand_for(problem, scale, zero):
    """The image is float16 and everything else int8; a result between two steps may be either."""
    problem = replace(problem, dtype="int8")
    image, of_y = problem.op == "conv2d", Scale(scale, zero)
    of_x, of_r = None if image else Scale(0.04, -128), Scale(0.05, 0)
    shape = (problem.N, problem.C, problem.H, problem.W)
    x = numbers(shape, 1).half() if image else numbers(shape, 1, -128, 127).round().to(torch.int8)
    y = torch.zeros((problem.N, problem.F, problem.P, problem.Q), dtype=torch.int8, device=DEVICE)
    r = numbers(y.shape, 2, -128, 127).round().to(torch.int8) if problem.residual else None
    w = numbers((problem.F, problem.C, problem.K, problem.K), 3).half() if image else None
    b = numbers((problem.F,), 4).half() if image else None
    assert operations.takes(problem, "float16" if image else "int8", "int8")
    found = run(problem, x, y, r, w, b, (of_x, of_r, of_y)).double()
    given = x.double() if image else with_torch.real(x, of_x).double()
    z = with_torch.linear_part(problem, given, *(None if one is None else one.double() for one in (w, b)))
    z = with_torch.activated(z, with_torch.activation_of(problem))
    if r is not None:
        z = z + with_torch.real(r, of_r).double()
    steps = z / scale + zero
    off = (found - steps.clamp(-128, 127)).abs()
    assert bool((off <= 0.5 + 1e-3).all()), float(off.max())
    assert len(found.unique()) > 8


def test_means_of_int8():
    problem, scale = Operation("mean", 2, 72, 72, 7, 7, layout="NHWC", dtype="int8"), Scale(0.037, -128)
    x = numbers((2, 72, 7, 7), 1, -128, 127).round().to(torch.int8)
    y = torch.full((2, 72, 1, 1), math.nan, dtype=torch.float16, device=DEVICE)
    wanted = with_torch.real(x, scale).double().mean((2, 3), keepdim=True)
    found = run(problem, x, y, scales=(scale, None, None)).double()
    assert float((found - wanted).abs().max()) <= 2.0**-11 * float(wanted.abs().max()) + 1e-6


@pytest.mark.parametrize(
    "problem, of",
    [
        (replace(CASES[0], layout="NCHW"), ()),
        (replace(CASES[0], C=32), ()),  # many channels: a matrix product
        (replace(CASES[0], K=7, padding=3), ()),  # its filters do not fit in registers
        (replace(CASES[0], dtype="bfloat16"), ()),
        (replace(CASES[0], dtype="int8"), ("int8", "int8")),
        (window("max_pool", 12, 9, 9, 3, 2, 1), ()),
        (window("relu", 8, 9, 9, N=70000), ()),
        (Operation("mean", 1, 12, 12, 7, 7, layout="NHWC"), ()),
        (Operation("linear", 5, 16, 10, 1, 1), ()),  # many images: a matrix product
        (Operation("linear", 1, 16, 10, 1, 1, activation="relu"), ()),
    ],
    ids=lambda one: name_of(one) if isinstance(one, Operation) else "-".join(one),
)
def test_what_is_left_to_pytorch(problem, of):
    assert not operations.takes(problem, *of)
