"""Every kind of array keeps what a kernel stores, is watched for races however it is named, and is refused where it is
read-only."""

import numba
import numpy as np
import pytest
from numba import float32

from dwlab import simt
from dwlab.simt import cuda
from tests.loaded import kernel_of, program

pytestmark = pytest.mark.quick


fill = kernel_of("a", "i, j = cuda.grid(2)", "if i < a.shape[0] and j < a.shape[1]: a[i, j] = 10 * i + j")
EXPECTED = np.add.outer(10 * np.arange(4), np.arange(6))

KINDS = {
    "ndarray": lambda: np.zeros((4, 6), np.int32),
    "fortran": lambda: np.zeros((4, 6), np.int32, order="F"),
    "transposed": lambda: np.zeros((6, 4), np.int32).T,
    "slice of rows": lambda: np.zeros((8, 6), np.int32)[2:6],
    "0xFF": lambda: np.full((4, 6), -1, np.int32),
    "pinned": lambda: cuda.pinned_array((4, 6), np.int32),
    "mapped": lambda: cuda.mapped_array((4, 6), np.int32),
    "mapped fortran": lambda: cuda.mapped_array((4, 6), np.int32, order="F"),
    "mapped slice": lambda: cuda.mapped_array((9, 8), np.int32)[3:7, 1:7],
    "mapped columns": lambda: cuda.mapped_array((4, 12), np.int32)[:, ::2],
    "mapped transposed": lambda: cuda.mapped_array((6, 4), np.int32).T,
    "mapped reshaped": lambda: cuda.mapped_array(24, np.int32).reshape(4, 6),
    "mapped like": lambda: cuda.mapped_array_like(np.zeros((4, 6), np.int32)),
    "mapped copy": lambda: cuda.mapped_array((4, 6), np.int32).copy(),
    "managed": lambda: cuda.managed_array((4, 6), np.int32),
    "managed slice": lambda: cuda.managed_array((4, 8), np.int32)[:, 1:7],
    "device": lambda: cuda.device_array((4, 6), np.int32),
    "device fortran": lambda: cuda.device_array((4, 6), np.int32, order="F"),
    "device slice": lambda: cuda.to_device(np.zeros((6, 9), np.int32))[1:5, 2:8],
    "device view": lambda: cuda.to_device(np.zeros((4, 6), np.float32)).view(np.int32),
    "device reshaped": lambda: cuda.to_device(np.zeros(24, np.int32)).reshape(4, 6),
}


def contents(array):
    return array.copy_to_host() if hasattr(array, "copy_to_host") else array


@pytest.mark.parametrize("hint", [None, cuda.Out, cuda.InOut])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_a_kernel_stores_is_there_afterwards(kind, hint):
    array = KINDS[kind]()
    fill[(1, 2), (4, 3)](array if hint is None else hint(array))
    assert (contents(array) == EXPECTED).all()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_xray_leaves_every_kind_as_it_was(kind):
    array = KINDS[kind]()
    before = contents(array).copy()
    simt.xray(fill, (1, 2), (4, 3), array)
    assert (contents(array) == before).all()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_arrays_in_tuples(kind):
    kernel, _ = program(["for a in pair:", "    a[cuda.threadIdx.x, cuda.threadIdx.y] += 1"], "pair")
    arrays = KINDS[kind](), KINDS[kind]()
    for array in arrays:
        fill[(1, 2), (4, 3)](array)
    kernel[1, (4, 6)](arrays)
    assert all((contents(a) == EXPECTED + 1).all() for a in arrays)


def test_an_array_given_twice_is_one_on_the_device_and_two_from_the_host():
    kernel, _ = program(["i = cuda.threadIdx.x", "x[i] += 1", "y[i] += 10"], "x, y")
    device = cuda.to_device(np.zeros(4, np.int32))
    kernel[1, 4](device, device)
    assert device.copy_to_host().tolist() == [11] * 4
    mapped = cuda.mapped_array(4, np.int32)
    mapped[:] = 0
    kernel[1, 4](mapped, mapped)
    assert mapped.tolist() == [11] * 4
    host = np.zeros(4, np.int32)
    kernel[1, 4](host, host)  # copied twice, and back in the sequence of the arguments
    assert host.tolist() == [10] * 4


def test_in_comes_not_back_and_read_only_is_refused():
    array = np.zeros((4, 6), np.int32)
    fill[1, (4, 6)](cuda.In(array))
    assert not array.any()
    for given in (np.zeros((4, 6), np.int32), cuda.mapped_array((4, 6), np.int32)):
        given.flags.writeable = False
        for one in (given, cuda.In(given)):
            with pytest.raises(simt.UnsupportedError, match="read-only"):
                fill[1, (4, 6)](one)
    both = cuda.mapped_array(4, np.int32)
    both[:] = 1
    view = both[:]
    view.flags.writeable = False
    program(["y[cuda.threadIdx.x] = x[cuda.threadIdx.x] + 1"], "x, y")[0][1, 4](view, both)
    assert both.tolist() == [2] * 4


def test_records_keep_what_is_stored_in_their_fields():
    dtype = np.dtype([("a", np.int32), ("b", np.float64)], align=True)
    kernel, _ = program(["i = cuda.threadIdx.x", "p[i].a = i", "p[i]['b'] = i / 2"], "p")
    for p in (np.zeros(8, dtype), cuda.to_device(np.zeros(8, dtype)), cuda.mapped_array(8, dtype)):
        kernel[1, 8](p)
        assert contents(p)["a"].tolist() == list(range(8)) and contents(p)["b"][3] == 1.5


# --- every store is seen ---------------------------------------------------------------------------


@cuda.jit(device=True)
def first(x, y):
    return x


@cuda.jit(device=True)
def put(x, i, v):
    x[i] = v


@cuda.jit(device=True)
def put_field(p, i, v):
    p[i].a = v


# Each stores to element t // 2 of the first parameter, from two threads.
ALIASES = {
    "plain": ["x[t // 2] = t"],
    "name": ["a = x", "a[t // 2] = t"],
    "two names": ["a = b = x", "b[t // 2] = t"],
    "annotated": ["a: object = x", "a[t // 2] = t"],
    "tuple": ["a, b = x, y", "a[t // 2] = t"],
    "swapped": ["a, b = y, x", "a, b = b, a", "a[t // 2] = t"],
    "nested tuple": ["(a, (b, c)) = (y, (x, y))", "b[t // 2] = t"],
    "tuple's element": ["pair = (y, x)", "pair[1][t // 2] = t"],
    "loop over a tuple": ["for a in (y, x):", "    a[t // 2] = t"],
    "loop over one": ["for a in (x,):", "    a[t // 2] = t"],
    "loop over a name": ["pair = (x, y)", "for a in pair:", "    a[t // 2] = t"],
    "enumerate": ["for k, a in enumerate((x, y)):", "    a[t // 2] = t + k"],
    "zip": ["for a, v in zip((x, y), (1, 2)):", "    a[t // 2] = t + v"],
    "conditional": ["a = x if n > 0 else y", "a[t // 2] = t"],
    "conditional, other side": ["a = y if n < 0 else x", "a[t // 2] = t"],
    "if statement": ["if n > 0:", "    a = x", "else:", "    a = y", "a[t // 2] = t"],
    "slice": ["a = x[2:]", "a[t // 2] = t"],
    "slice of a slice": ["a = x[1:][1:]", "a[t // 2] = t"],
    "stride": ["a = x[::2]", "a[t // 2] = t"],
    "ellipsis": ["a = x[..., :]", "a[t // 2] = t"],
    "device function": ["put(x, t // 2, t)"],
    "keyword": ["put(v=t, i=t // 2, x=x)"],
    "alias to a device function": ["a = x", "put(a, t // 2, t)"],
    "slice to a device function": ["put(x[1:], t // 2, t)"],
    "conditional to a device function": ["put(x if n > 0 else y, t // 2, t)"],
    "returned": ["a = first(x, y)", "a[t // 2] = t"],
    "returned at once": ["first(x, y)[t // 2] = t"],
    "function by name": ["f = put", "f(x, t // 2, t)"],
    "augmented": ["x[t // 2] += t"],
    "augmented alias": ["for a in (x, y):", "    a[t // 2] += t"],
    "atomic and store": ["a = x", "cuda.atomic.add(a, 40, 1)", "a[t // 2] = t"],
}


@pytest.mark.parametrize("name", sorted(ALIASES))
@pytest.mark.parametrize("kind", ["ndarray", "device", "mapped"])
def test_two_writers_are_found_however_the_array_is_named(name, kind):
    kernel, _ = program(["t = cuda.threadIdx.x", *ALIASES[name]], "x, y, n", put=put, first=first)
    x, y = (cuda.mapped_array(64, np.int32) if kind == "mapped" else np.zeros(64, np.int32) for _ in range(2))
    x[:], y[:] = 0, 0
    x, y = map(cuda.to_device, (x, y)) if kind == "device" else (x, y)
    with pytest.raises(simt.HazardError, match="two writers|race"):
        kernel[1, 64](x, y, 1)
    assert {h.kind for h in simt.xray(kernel, 1, 64, x, y, 1).hazards} <= {"two writers", "race"}


@pytest.mark.parametrize(
    "lines", [["p[t // 2].a = t"], ["p.a[t // 2] = t"], ["p[t // 2]['a'] = t"], ["q = p[t // 2]", "q.a = t"],
              ["p[t // 2].a += t"], ["for q in (p,):", "    q[t // 2].a = t"], ["put_field(p, t // 2, t)"],
              ["q = p[t // 2]", "q['a'] = t"]],
)  # fmt: skip
def test_two_writers_of_a_record_are_found(lines):
    dtype = np.dtype([("a", np.int32), ("b", np.int32)])
    kernel, _ = program(["t = cuda.threadIdx.x", *lines], "p", put_field=put_field)
    with pytest.raises(simt.HazardError, match="two writers|race"):
        kernel[1, 64](np.zeros(32, dtype))
    good, _ = program(
        [line.replace("t // 2", "t") for line in ["t = cuda.threadIdx.x", *lines]], "p", put_field=put_field
    )
    p = np.zeros(64, dtype)
    good[1, 64](p)
    assert p["a"].tolist() == list(range(64))


# --- local arrays, shared memory, random states ----------------------------------------------------


@cuda.jit(device=True)
def last(v, n):
    own = cuda.local.array(4, float32)
    for k in range(n):
        own[k] = v
    return own[3]


PAIR = numba.from_dtype(np.dtype([("u", np.float32), ("v", np.int32)], align=True))


@cuda.jit(device=True)
def last_of_records(v, n):
    own = cuda.local.array(4, PAIR)
    for k in range(n):
        own[k].u = v
    return own[3].u


@pytest.mark.parametrize("last", [last, last_of_records])
@pytest.mark.parametrize(
    "lines, found",
    [
        (["y[t] = last(x, 4) + last(x, 4)"], False),
        (["y[t] = last(x, 4)", "y[t] = last(x, 3)"], True),
        (["for n in range(4, 6 - y.size // 32):", "    y[t] = last(x, n)"], False),
        (["for n in range(2):", "    y[t] = last(x, 4 - n)"], True),
        (["if t < 3:", "    y[t] = last(x, 4)", "else:", "    y[t] = last(x, 4)"], False),
        (["if t < 3:", "    y[t] = last(x, 4)", "y[t] = last(x, 4 if t < 5 else 3)"], True),
    ],
)
def test_a_local_array_is_new_at_each_call(lines, found, last):
    kernel, _ = program(["t = cuda.threadIdx.x", *lines], "x, y", last=last)
    kinds = {h.kind for h in simt.xray(kernel, 1, 32, 1.0, np.zeros(32, np.float32)).hazards}
    assert kinds == ({"uninitialised"} if found else set())


def test_random_states_are_made_without_a_gpu():
    from numba.cuda import random

    states, expected = random.create_xoroshiro128p_states(256, seed=1), np.zeros(256, random.xoroshiro128p_dtype)
    random.init_xoroshiro128p_states_cpu(expected, 1, 0)
    assert (states.copy_to_host() == expected).all()
    lines = "i = cuda.grid(1)", "for k in range(200):", "    out[i, k] = uniform(states, i)"
    kernel, _ = program(lines, "states, out", uniform=random.xoroshiro128p_uniform_float32)
    out = np.zeros((256, 200), np.float32)
    kernel[4, 64](states, out)
    inside = out[:, ::2] ** 2 + out[:, 1::2] ** 2 <= 1
    assert abs(4 * inside.mean() - np.pi) < 0.05
    assert (states.copy_to_host() != expected).all()


@pytest.mark.parametrize("function", [np.sin, np.hypot, np.maximum, np.logical_not])
def test_a_ufunc_of_arrays_writes_into_its_last_one(function):
    x = np.linspace(0, 1, 12).reshape(3, 4)
    given = (x, x[0])[: function.nin]

    names = ", ".join(["x", "row"][: function.nin])
    kernel, _ = program([f"function({names}, out)"], f"{names}, out", function=function)
    out, want = np.zeros((2, 3, 4))
    kernel[1, 1](*given, out)
    function(*given, want)
    np.testing.assert_allclose(out, want, rtol=1e-15)


@pytest.mark.parametrize("align", [True, False])
def test_records_hold_records_and_complex_numbers_at_half_their_size(align):
    inner = np.dtype([("p", np.float32), ("q", np.float32, (3,))], align=align)
    outer = np.dtype([("a", np.float32), ("c", np.complex64), ("r", inner), ("s", inner, (2,))], align=align)

    lines = ["i = cuda.grid(1)", "x[i].c += 1j * x[i].a", "x[i].r.q[1] = x[i].a"]
    lines += ['x[i]["s"][1]["p"] = x[i]["r"]["q"][1] + 1', "x[i].s[0].q[2] = x[i].c.imag", "y[i] = x[i]"]
    use, _ = program(lines, "x, y")
    x, y = np.zeros((2, 5), outer)
    x["a"], x["c"] = np.arange(5), 3
    use[1, 5](x, y)
    assert (x["c"] == 3 + 1j * x["a"]).all() and (x["r"]["q"][:, 1] == x["a"]).all()
    assert (x["s"]["p"][:, 1] == x["a"] + 1).all() and (x["s"]["q"][:, 0, 2] == x["a"]).all()
    assert x.tobytes() == y.tobytes()
