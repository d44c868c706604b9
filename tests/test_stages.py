import ast
import functools
import re
import statistics
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from mutated import text_of

from dwlab.gpu.driver import allow_shared
from dwlab.kernels import registry
from dwlab.kernels.registry import MAX_SHARED, Launch, StageError, add_parts, check_arrays, limits, register, stage
from dwlab.problems import KINDS, PAPER, PATHS, SMALL, DepthwiseConv1d, layers
from dwlab.problems.references import allowed_error, reference
from dwlab.target import cuda

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import interfaces  # noqa: E402

pytestmark = pytest.mark.quick
FOUR = ["naive", "coalesced", "shared", "warp_tiled"]
GRADIENTS = [f"{one.path}/{one.name}" for one in registry.stages("depthwise1d")
             if one.path != "forward" and one.name != "naive"]  # fmt: skip


def arrays_of(problem, path="forward"):
    made = dict(problem.inputs(path))
    for name in problem.outputs(path):
        made[name] = np.full(problem.shapes(path)[name], np.nan, np.float32)
    return made


def test_stages_are_listed_by_path_in_the_order_of_paths():
    listed = registry.stages("depthwise1d")
    assert list(dict.fromkeys(one.path for one in listed)) == list(PATHS)
    for path in PATHS:
        here = registry.stages("depthwise1d", path=path)
        assert [one.order for one in here] == sorted({one.order for one in here}) and here[0].order == 1
        assert all(one.id == f"depthwise1d/{path}/{one.name}" for one in here)
        assert all(re.match(rf"dwlab/kernels/depthwise1d/(forward_)?{path}_", one.file) for one in here)
    forward = [one.name for one in registry.stages("depthwise1d", "forward")]
    assert [name for name in forward if name in FOUR] == FOUR


def test_a_stage_in_the_middle_renames_nothing():
    """Its number has a second part: forward_2_5_filter.py stands between forward_2_… and forward_3_…"""
    found = {name: registry._FILE.match(f"forward_{name}.py") for name in ("2_a", "2_5_b_c", "10_d", "2_5", "2_5_5_e")}
    named = {name: (registry._order(one[2]), one[3]) for name, one in found.items() if one}
    assert named == {"2_a": (2, "a"), "2_5_b_c": (2.5, "b_c"), "10_d": (10, "d")}
    assert sorted(named.values()) == [(2, "a"), (2.5, "b_c"), (10, "d")]


def test_unknown_names_are_errors_with_the_nearest_and_the_end_of_several_ids_lists_them():
    with pytest.raises(StageError, match="there is no path 'forwards'. The nearest is 'forward'"):
        registry.stages("depthwise1d", path="forwards")
    with pytest.raises(StageError, match="there is no op 'depthwise1'. The nearest is 'depthwise1d'"):
        registry.stages("depthwise1")
    with pytest.raises(StageError, match="Which of them: .*depthwise1d/forward/warp_tiled, .*weight_grad/warp_tiled"):
        stage("warp_tiled")
    for id in ("", "nosuch"):
        with pytest.raises(StageError, match=f"there is no stage {id!r}. None of the"):
            stage(id)


@pytest.mark.parametrize(
    ("id", "nearest"),
    [
        ("depthwise1d/forward/coalesed", "depthwise1d/forward/coalesced"),
        ("dp4a", "pointwise/forward/dp4a"),
        ("DEPTHWISE1D/FORWARD/NAIVE", "depthwise1d/forward/naive"),
    ],
)
def test_an_unknown_stage_is_named_with_the_nearest(id, nearest):
    with pytest.raises(StageError, match=f"there is no stage {id!r}. The nearest is '{nearest}"):
        stage(id)


def test_the_lesson_of_a_stage_speaks_of_it():
    folder = Path(registry.__file__).parents[2] / "notebooks" / "src"
    lessons = {file.stem[:2]: file.read_text(encoding="utf-8") for file in folder.glob("[0-9]*.py")}
    for one in registry.stages():
        for number, text in lessons.items():
            if one.lesson == number:
                named = one.id in text or re.search(rf"`({one.path}/)?{one.name}`", text)
                assert named, f"lesson {number} neither shows nor names {one.id}: leave out lesson={number!r}"
            elif not one.lesson:  # then no lesson shows its text
                assert not re.search(rf"(stage|kernel):{one.id}\b", text), (one.id, number)
        assert not one.lesson or one.lesson in lessons, one.id


def test_every_stage_is_a_key_and_says_in_one_line_what_it_is():
    assert len(set(registry.stages())) == len(registry.stages())  # what is judged once is kept by it
    for one in registry.stages("depthwise1d"):
        assert re.fullmatch(r"[A-Z][\w-]+: .*\.", one.summary), one.summary


FEW_TAPS = DepthwiseConv1d(2, 3, 20, 6, 2)


def test_source_is_the_constants_and_the_kernel():
    for one in registry.stages("depthwise1d"):
        text = one.source()
        compile(text, one.file, "exec")
        # A stage made by shape has its kernel inside the function that makes it; of two paths it has the first's names.
        indent = "    " if isinstance(one.kernel, registry.ByShape) else ""
        takes = list(PAPER.arrays("forward" if "/forward_" in one.file else one.path))
        if one.launch(PAPER if one.supports(PAPER) else FEW_TAPS).parts:  # what such a launch writes are the parts
            takes[-1] = "parts"
        kernel = rf"^{indent}@cuda\.jit\n{indent}def kernel\({', '.join(takes)}, shift(, \w+)*\):"
        assert len(re.findall(kernel, text, re.M)) == 1, one.id
        by_shape = re.search(r"^@by_shape\ndef kernel\(", text, re.M)
        assert isinstance(one.kernel, registry.ByShape) == bool(by_shape), one.id
        for not_shown in ("import ", "def traffic", "def launch", "@register"):
            assert not_shown not in text, (one.id, not_shown)
        assert not re.search('^"""', text, re.M), one.id  # the file's docstring; a function may have its own
    assert stage("depthwise1d/forward/coalesced").source().startswith("TILE = 32")


@functools.cache
def tree_of(name):
    return ast.parse(text_of(name))


def reading(one, faces):
    """Lines of a stage's file and of those that it reaches by import, to interfaces: of these what it takes of them."""
    own, taken = [one.file.removesuffix(".py").replace("/", ".")], set()
    for name in own:
        tree = tree_of(name)
        named = (n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name))
        used = {(n.value.id, n.attr) for n in named}
        for node in (n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.module or "").count(".") > 1):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in faces:
                    taken |= {(whole, attr) for of, attr in used if of == (alias.asname or alias.name)}
                elif node.module in faces:
                    taken.add((node.module, alias.name))
                else:
                    reached = whole if whole in sys.modules else node.module
                    if re.fullmatch(r"dwlab\.kernels\.(?!tiling)\w+\.\w+", reached) and reached not in own:
                        own.append(reached)
    of_faces = sum(faces[name][attr].lines if attr in faces[name] else 1 for name, attr in taken)
    return of_faces + sum(text_of(name).count("\n") for name in own)


def test_what_a_reader_of_a_stage_reads():
    """A stage to interfaces (docs/parts.md): median, upper quartile, worst; and those in lessons."""
    faces = {f"dwlab.kernels.{file.parent.name}.{file.stem}": interfaces.offered(file) for file in interfaces.files()}
    lines = {one.id: reading(one, faces) for one in registry.stages()}
    _, median, upper = statistics.quantiles(lines.values(), n=4)
    assert median <= 250 and upper <= 450 and max(lines.values()) <= 1050, sorted(lines.items(), key=lambda row: row[1])
    folder = Path(registry.__file__).parents[2] / "notebooks" / "src"
    texts = "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.py"))
    printed = {id: count for id, count in lines.items() if re.search(rf"begin:(stage|kernel):{id} ", texts)}
    assert len(printed) >= 4 and max(printed.values()) <= 300, printed


def is_kernel(node):
    """Whether a node of syntax defines a kernel, not a device function."""
    made = [ast.unparse(one) for one in getattr(node, "decorator_list", ()) if isinstance(node, ast.FunctionDef)]
    return any(one.startswith("cuda.jit") and "device=True" not in one for one in made)


def test_few_names_stand_before_a_kernels_first_line():
    """Names that its maker binds, parameters not counted: 12 are enough, but where PTX would be other, and for one that
    lesson 16 shows, where nothing has a named tuple yet."""
    found, folder = {}, Path(registry.__file__).parent
    allowed = {"pointwise/forward_7_int8.py: kernel": 21, "depthwise1d/forward_input_grad_6_wide.py: kernel": 13}
    for file in folder.rglob("*.py"):
        for maker in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            body = maker.body if isinstance(maker, ast.FunctionDef) else []
            for at in (i for i, node in enumerate(body) if is_kernel(node)):
                bound = {node.name for node in body[:at] if isinstance(node, ast.FunctionDef)}
                for node in (node for node in body[:at] if not isinstance(node, ast.FunctionDef)):
                    named = (one for one in ast.walk(node) if isinstance(one, ast.Name))
                    bound |= {one.id for one in named if isinstance(one.ctx, ast.Store)}
                found[f"{file.relative_to(folder)}: {maker.name}"] = len(bound - {"_"})
    assert {name: count for name, count in found.items() if count > 12} == allowed, found
    assert statistics.median(found.values()) <= 10, found


def test_no_kernel_imports_a_stage_by_its_number():
    """What two stages share is a module of its own: then a stage in the middle renames nothing."""
    numbered = re.compile(rf"\b({'|'.join(PATHS + KINDS)})_\d+_\w+")
    for folder in ("depthwise1d", "depthwise2d", "pointwise", "fused", "operations", "parts"):
        for file in (Path(registry.__file__).parent / folder).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    named = [getattr(node, "module", None) or "", *(one.name for one in node.names)]
                    assert not any(map(numbered.search, named)), f"{file.name}: {ast.unparse(node)}: write stage(…)"


PROBLEM = DepthwiseConv1d(2, 3, 10, 4)


def changed(**changes):
    return {**arrays_of(PROBLEM), **changes}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed(x=np.zeros((6, 10), np.float32)), "x has 2 dimensions (6, 10)"),
        (changed(x=np.zeros((2, 3, 11), np.float32)), "x has shape (2, 3, 11); B=2 H=3 L=10 K=4 padding=causal needs"),
        (changed(x=np.zeros((2, 3, 10))), "x is float64; float32 is needed: x.astype('float32')"),
        (changed(x=np.zeros((2, 3, 20), np.float32)[:, :, ::2]), "numpy.ascontiguousarray(x)"),
        (changed(y=np.zeros((2, 4, 10), np.float32)[:, :3]), "y is not C-contiguous"),
        (changed(y=np.frombuffer(bytes(240), np.float32).reshape(2, 3, 10)), "y is read-only, and forward writes it"),
        (changed(w=[[1.0] * 4] * 3), "w is a list, not an array"),
        (changed(dw=np.zeros((3, 4), np.float32)), "forward has no array 'dw': it takes x, w, y"),
        ({"x": np.zeros((2, 3, 10), np.float32)}, "forward needs an array 'w' of shape (3, 4); given: x"),
    ],
)
def test_arrays_that_do_not_fit_give_one_clear_error_and_start_nothing(arrays, message):
    before = {name: np.copy(array) for name, array in arrays.items() if isinstance(array, np.ndarray)}
    with pytest.raises(StageError, match=re.escape(message)):
        stage("depthwise1d/forward/naive").run(PROBLEM, arrays)
    for name, array in before.items():
        np.testing.assert_array_equal(arrays[name], array)


def test_strides_of_axes_of_length_one_do_not_matter():
    p = DepthwiseConv1d(1, 3, 10, 1)
    x = np.zeros((2, 3, 10), np.float32)[::2]
    w = np.zeros((3, 2), np.float32)[:, :1]
    assert x.strides[0] != 3 * 10 * 4
    with pytest.raises(StageError, match="w is not C-contiguous"):
        check_arrays(p, "forward", {"x": x, "w": w, "y": np.zeros_like(x)})
    check_arrays(p, "forward", {"x": x, "w": np.ascontiguousarray(w), "y": np.zeros((1, 3, 10), np.float32)})


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (Launch((1,), (1025,)), "1025 in x; the hardware's limit is 1024"),
        (Launch((1,), (1, 1, 65)), "65 in z; the hardware's limit is 64"),
        (Launch((1, 65536), (1,)), "65536 in y; the hardware's limit is 65535"),
        (Launch((2**31,), (1,)), f"{2**31} in x"),
        (Launch((0,), (1,)), "0 in x; the least is 1"),
        (Launch((), (1,)), "0 dimensions"),
        (Launch(1, 32, shared_bytes=MAX_SHARED + 1), f"shared memory a block; no GPU gives more than {MAX_SHARED:,}"),
    ],
)
def test_limits_name_what_no_gpu_starts(launch, message):
    assert any(message in found for found in limits(launch))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (((1.5,), (32,)), "grid=(1.5,): 1.5 is not a whole number (use // for division)"),
        (((1,), (32,), 5), "scalars=5 is no tuple: one scalar is written (shift,), with its comma"),
        (((1,), (32,), (), 0.5), "shared_bytes=0.5"),
        (((1,), (32,), (), 0, False, 2.0), "parts=2.0: 2.0 is not a whole number (use // for division)"),
        (((1,), (32,), (), 0, True, 3), "a launch with parts=3 writes its last output whole: zero does not go with it"),
    ],
)
def test_a_launch_of_other_things_than_whole_numbers_is_refused(fields, message):
    with pytest.raises(StageError, match=re.escape(message)):
        Launch(*fields)


def test_a_launch_takes_single_sizes_and_numpy_integers_as_numba_does():
    made = Launch(np.int64(3), 32, [1])
    assert made == Launch((3,), (32,), (1,)) and type(made.grid[0]) is int
    assert (made.blocks, made.threads) == (3, 32)


def stage_module(tmp_path, monkeypatch, name):
    """A launch function that seems to come from a file of this name in the package."""
    module = types.ModuleType(f"dwlab.kernels.depthwise1d.{name}")
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    monkeypatch.setattr(registry, "_FOLDER", tmp_path)
    file = tmp_path / "depthwise1d" / f"{name}.py"
    code = compile("def launch(problem): return Launch((1,), (1,))", str(file), "exec")
    namespace = {"Launch": Launch, "__name__": module.__name__}
    exec(code, namespace)
    return namespace["launch"]


ROWS, ALL = "N=1 C=8 H=9 W=9 K=3 NHWC", "N=1 C=16 F=8 H=4 W=4 NHWC bias relu6"
DWPW = "N=1 C=16 H=5 W=5 K=3 NHWC bias relu6 -> N=1 C=16 F=8 H=5 W=5 NHWC bias"
PWDW = "N=1 C=16 F=16 H=5 W=5 NHWC bias relu6 -> N=1 C=16 H=5 W=5 K=3 NHWC bias"
PWPW = "N=1 C=16 F=16 H=5 W=5 NHWC bias relu6 -> N=1 C=16 F=8 H=5 W=5 NHWC bias"
WORDS = "N=1 C=16 F=16 H=4 W=4 NHWC int8"
PAIRS = """
dwpw, C=12 H=4 W=4 K=3, C=12 F=8 H=4 W=4
dwpw, C=8 H=4 W=4 K=3, C=8 F=12 H=4 W=4
pwdw, C=12 F=8 H=4 W=4, C=8 H=4 W=4 K=3
pwdw, C=8 F=12 H=4 W=4, C=12 H=4 W=4 K=3
pwpw, C=12 F=8 H=4 W=4, C=8 F=8 H=4 W=4
pwpw, C=8 F=12 H=4 W=4, C=12 F=8 H=4 W=4
pwpw, C=8 F=8 H=4 W=4, C=8 F=12 H=4 W=4
"""
NOT_TAKEN = [  # a stage, a problem that it takes, what is changed, the names of others that do
    ("depthwise2d/forward/planes", "N=1 C=4 H=7 W=7 K=3 NCHW", "C=4 => C=3", "naive or "),
    ("depthwise2d/forward/planes", "N=1 C=4 H=2 W=400 K=3 NCHW", "W=400 => W=900", "naive or "),
    ("depthwise2d/forward/registers", ROWS, "K=3 => K=14 padding 6", "naive$"),
    ("depthwise2d/forward/naive", ROWS, "NHWC => NHWC bfloat16", "registers or .*columns$"),
    ("depthwise2d/forward/int8", f"{ROWS} int8", "C=8 => C=6", "naive$"),
    ("depthwise2d/forward/columns", ROWS, "C=8 => C=7", "naive or .*registers$"),
    ("depthwise2d/forward/columns", f"{ROWS} float16", "C=8 => C=7", "naive or .*registers$"),
    ("depthwise2d/forward/columns", ROWS, "K=3 => K=9 padding 1", "naive or .*registers$"),
    ("depthwise2d/forward/columns", ROWS, "NHWC => NCHW", ".* or depthwise2d/forward/planes$"),
    ("pointwise/forward/shared", ALL, "NHWC => NHWC bfloat16", "tensor"),
    ("pointwise/forward/registers", ALL, "C=16 => C=6", "naive or "),  # rows of whole 16 bytes
    ("pointwise/forward/tensor", ALL, "C=16 => C=12", "naive or .*registers$"),  # sums of 16 and more
    ("pointwise/forward/tensor", f"{ALL} float16", "F=8 => F=7", "naive or "),
    ("pointwise/forward/tensor", f"{ALL} float16", "NHWC => NCHW", "naive or "),  # rows of channels
    ("pointwise/forward/tensor", f"{ALL} float16", "bias relu6 float16 => int8", "naive or "),
    ("pointwise/forward/split", ALL, "C=16 => C=18", "naive or "),
    ("pointwise/forward/split", "N=1 C=64 F=64 H=32 W=32 NHWC float16", "N=1 => N=65536", "other sizes$"),  # 32 bits
    ("fused/dwpw/slide", DWPW, "C=16 => C=6", "naive"),  # vectors of 4 channels
    ("fused/dwpw/slide", DWPW, "F=8 => F=6", "naive"),  # vectors of 4 filters
    ("fused/dwpw/slide", DWPW.replace("NHWC", "NHWC float16"), "C=16 => C=12", "naive"),  # vectors of 8 channels
    ("fused/dwpw/slide", DWPW, "NHWC => NCHW", "naive"),
    ("fused/pwdw/strips", PWDW.replace("NHWC", "NHWC float16"), "C=16 F => C=12 F", "map or fused/pwdw/recompute"),
    ("fused/pwdw/strips", PWDW.replace("NHWC", "NHWC float16"), "NHWC => NCHW", "map"),
    ("fused/pwdw/strips", PWDW, "NHWC => NCHW", "map"),
    ("fused/pwdw/map", PWDW, "=5 => =112", "recompute"),
    ("fused/pwdw/recompute", PWDW.replace("=5", "=20"), "K=3 => K=17", "map"),
    ("fused/pwpw/tensor", PWPW.replace("NHWC", "NHWC float16"), "C=16 F=16 => C=12 F=16", "naive"),
    ("fused/pwpw/tensor", PWPW.replace("NHWC", "NHWC float16"), "NHWC => NCHW", "naive"),
    ("fused/pwpw/tensor", PWPW, "NHWC => NCHW", "naive"),
    *(("pointwise/forward/int8", WORDS, edit, "naive") for edit in ("C=16 => C=22", "F=16 => F=6", "NHWC => NCHW")),
    *(("pointwise/forward/dp4a", WORDS, edit, "naive") for edit in ("C=16 => C=6", "int8 => float32")),
    # Channels that are no whole words of four int8, in either layer.
    *((f"fused/{path}/int8", "N=1 {} NHWC int8 -> N=1 {} NHWC int8".format(*pair), "=12 => =6", "")
      for path, *pair in (one.split(", ") for one in PAIRS.strip().splitlines())),
]  # fmt: skip


@pytest.mark.parametrize(("id", "taken", "edit", "others"), NOT_TAKEN, ids=[f"{id}: {e}" for id, _, e, _ in NOT_TAKEN])
def test_what_a_stage_does_not_take_it_names_with_those_that_do(id, taken, edit, others):
    one, refused = registry.stage(id), layers.problem(taken.replace(*edit.split(" => ")))
    assert one.launch(layers.problem(taken))
    here = "" if others.startswith(("other", ".*")) else f"{id.rpartition('/')[0]}/"
    for ask in (one.launch, one.traffic, one.kernel_for):
        with pytest.raises(StageError, match=f"^{id} does not take {re.escape(str(refused))}: use {here}{others}"):
            ask(refused)


def test_register_reads_the_files_name_and_refuses_misnamed_files_and_two_stages_of_one_name(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registry", {})

    def registered(name):
        register(kernel=None, traffic=None)(stage_module(tmp_path, monkeypatch, name))

    registered("weight_grad_3_two_pass")
    (made,) = registry._registry.values()
    assert (made.op, made.path, made.order, made.name) == ("depthwise1d", "weight_grad", 3, "two_pass")
    with pytest.raises(StageError, match="forwards_1_naive.py is no stage file"):
        registered("forwards_1_naive")
    registered("forward_1_same")
    registered("forward_1_same")  # a reload is no clash
    with pytest.raises(StageError, match="two stages are called depthwise1d/forward/same"):
        registered("forward_2_same")


def test_a_kernel_by_shape_is_made_once_a_shape_and_launched_by_its_arguments():
    made = []

    @registry.by_shape
    def kernel(L, K, SHIFT):
        made.append((L, K, SHIFT))

        @cuda.jit
        def kernel(x, w, y, shift):
            y[0, 0, 0] = 100 * L + K

        return kernel

    some = registry.stage("depthwise1d/forward/wide").with_kernel(kernel)
    for problem in (DepthwiseConv1d(1, 1, 8, 4), DepthwiseConv1d(2, 1, 8, 4), DepthwiseConv1d(1, 1, 8, 4, "same")):
        arrays = arrays_of(problem)
        some.kernel_for(problem)[1, 1](*some.args(problem, arrays))
        assert arrays["y"][0, 0, 0] == 804
    assert made == [(8, 4, 0), (8, 4, 2)]
    assert some.kernel_for(problem) is some.kernel.make(8, 4, 2)
    # Shapes that the stage is not for still go to the other stage.
    long = DepthwiseConv1d(1, 1, 65, 3)
    assert some.kernel_for(long) is registry.stage("depthwise1d/forward/registers").kernel_for(long)


WIDE = [one for one in registry.stages("depthwise1d") if one.aligned == 16]


@pytest.mark.parametrize("one", WIDE, ids=lambda one: one.id)
def test_every_array_of_a_stage_that_moves_16_bytes_must_begin_at_16(one):
    problem = DepthwiseConv1d(2, 3, 8, 4)
    host = arrays_of(problem, one.path)
    arrays = {name: cuda.to_device(array) for name, array in host.items()}
    for name, array in host.items():
        message = f"^{name} begins at an address that is no multiple of 16 bytes, as {one.id} needs"
        for start in (1, 2, 3):
            odd = cuda.to_device(np.zeros(array.size + 4, np.float32))[start : start + array.size]
            with pytest.raises(StageError, match=message):
                one.run(problem, {**arrays, name: odd.reshape(array.shape)})
    for name in problem.outputs(one.path):
        assert np.isnan(arrays[name].copy_to_host()).all()  # nothing started
    # A shape that the stage hands over needs no alignment.
    other = DepthwiseConv1d(2, 3, 67, 10)
    if one.supports(other):
        return
    arrays = {name: cuda.to_device(array) for name, array in arrays_of(other, one.path).items()}
    first = other.arrays(one.path)[0]
    long = cuda.to_device(np.concatenate([[0], other.inputs(one.path)[first].ravel()]).astype(np.float32))
    one.run(other, {**arrays, first: long[1:].reshape(2, 3, 67)})
    judge_outputs(other, one.path, {name: arrays[name].copy_to_host() for name in other.outputs(one.path)})


def judge_outputs(problem, path, got):
    inputs = problem.inputs(path)
    want, allowed = reference(problem, path, inputs), allowed_error(problem, path, inputs)
    for name in problem.outputs(path):
        assert (np.abs(got[name] - want[name]) <= allowed[name]).all(), name  # NaN is never below


# ---- a launch in parts

SUMMED = [one for one in registry.stages("depthwise1d") if one.launch(SMALL).parts]


@pytest.mark.parametrize("size", [1, 31, 32, 33, 6144])
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 127, 128, 129, 1000])
def test_parts_are_added_up_each_once(n, size):
    if n * size > 200_000:
        size = 70
    # Whole numbers, each below 2**24 as their sum: right is right to the bit, and no part is taken twice or left out.
    parts = np.random.default_rng([n, size]).integers(0, 2**24 // n, (n, size)).astype(np.float32)
    output = np.full(size, np.nan, np.float32)
    add_parts(parts, output)
    np.testing.assert_array_equal(output, parts.sum(axis=0, dtype=np.float64))


@pytest.mark.parametrize("one", SUMMED, ids=lambda one: one.id)
def test_the_workspace_of_a_launch_in_parts(one):
    problem = DepthwiseConv1d(3, 5, 24, 7, "same")
    n = one.launch(problem).parts
    shape = one.workspace_shape(problem)
    assert n >= 1 and shape == (n, 5, 7)
    arrays = {name: cuda.to_device(array) for name, array in arrays_of(problem, one.path).items()}
    for workspace, words in (
        (cuda.device_array((n + 1, 5, 7), np.float32), f"the workspace is float32 {(n + 1, 5, 7)}; "),
        (cuda.device_array((n * 5, 7), np.float32), f"the workspace is float32 {(n * 5, 7)}; "),
        (cuda.device_array(shape, np.float64), f"the workspace is float64 {shape}; "),
        (np.zeros((7, 5, n), np.float32).T, "the workspace is float32 "),
    ):
        with pytest.raises(StageError, match=re.escape(f"contiguous float32 {shape} is needed")) as told:
            one.starter(problem, arrays, workspace)
        assert words in str(told.value)
    # A given one is used, whatever it held, and may be used again.
    workspace = cuda.to_device(np.full(shape, np.nan, np.float32))
    start = one.starter(problem, arrays, workspace)
    bits = set()
    for _ in range(3):
        start(0)
        cuda.synchronize()
        got = {name: arrays[name].copy_to_host() for name in problem.outputs(one.path)}
        judge_outputs(problem, one.path, got)
        bits.add(b"".join(array.tobytes() for array in got.values()))
    assert len(bits) == 1
    np.testing.assert_allclose(workspace.copy_to_host().sum(axis=0), got["dw"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("one", registry.stages("depthwise1d"), ids=lambda one: one.id)
def test_an_example_is_what_the_kernel_takes(one):
    """What it adds to is 0, what it must write is NaN, a workspace too."""
    problem = FEW_TAPS
    how = one.launch(problem)
    assert one.workspace_shape(problem) == ((how.parts, 3, 6) if how.parts else ())
    args = one.example(problem)
    names = problem.arrays(one.path)
    assert args[len(names) :] == how.scalars
    for name, array in zip(names, args[: len(names)], strict=True):
        last = name == names[-1]
        shape, whole = problem.shapes(one.path)[name], last and how.parts
        line = (np.prod(shape),) if one.view in ("words", "line") else shape
        assert array.shape == (one.workspace_shape(problem) if whole else line)
        assert array.dtype == np.float32
        if name in problem.outputs(one.path):
            assert (array == 0).all() if last and how.zero else np.isnan(array).all(), name
    kernel = one.kernel_for(problem)
    allow_shared(kernel, args, how.shared_bytes)
    kernel[how.grid, how.block, 0, how.shared_bytes](*args)
    made = dict(zip(names, args, strict=False))
    if how.parts:
        made[names[-1]] = made[names[-1]].sum(axis=0, dtype=np.float64)
    made = {name: array.reshape(problem.shapes(one.path)[name]) for name, array in made.items()}
    judge_outputs(problem, one.path, made)


def test_a_fused_kernel_that_adds_is_zeroed_in_its_last_output_only():
    problem = DepthwiseConv1d(2, 3, 20, 6)

    @cuda.jit
    def nothing(dy, x, w, dx, dw, shift):
        return

    arrays = arrays_of(problem, "backward")
    stage("depthwise1d/backward/naive").with_kernel(nothing).run(problem, arrays)
    assert np.isnan(arrays["dx"]).all() and (arrays["dw"] == 0).all()


@pytest.mark.parametrize(
    ("id", "problem", "message"),
    [
        *((id, DepthwiseConv1d(2**16, 2**15, 60, 3), f"{3 * 2**31} strips do not fit the kernel's 32-bit indices")
          for id in ("forward/strips", "input_grad/strips")),
        *((id, DepthwiseConv1d(1, 2**15, 2**12, 3), "33*H*L of B=1 H=32768 L=4096 K=3 padding=causal")
          for id in ("weight_grad/strips", "backward/strips")),
        *((id, DepthwiseConv1d(2**28, 1, 320, 3), f"{2**32} strips of a channel do not fit the kernel's 32-bit indices")
          for id in ("weight_grad/strips", "backward/strips")),
        ("forward/naive", DepthwiseConv1d(1, 524_281, 1, 1), "65536 in y"),
        ("forward/coalesced", DepthwiseConv1d(1, 1, 65535 * 32 + 1, 1), "65536 in y"),
        ("forward/warp_tiled", DepthwiseConv1d(2**16, 2**16, 1, 1), "B*H = 4294967296 does not fit"),
        ("forward/warp_tiled", DepthwiseConv1d(1, 1, 2**31, 2**31), "L+K = 4294967296 does not fit"),
        *((id, DepthwiseConv1d(2**16, 2**16, 4, 1), "B*H = 4294967296 does not fit the kernel's 32-bit")
          for id in ("forward/wide", "forward/strips", "backward/naive", *GRADIENTS)),
        *((id, DepthwiseConv1d(1, 1, 2**32 - 4, 4), "L+K = 4294967296 does not fit the kernel's 32-bit")
          for id in ("forward/strips", *GRADIENTS)),
    ],
)  # fmt: skip
def test_what_does_not_fit_32_bits_is_refused_before_any_memory_is_asked_for(id, problem, message):
    one = stage(f"depthwise1d/{id}")
    for ask in (one.launch, one.workspace_shape, one.example):
        with pytest.raises(StageError, match=re.escape(message)):
            ask(problem)


def test_run_takes_device_arrays_and_views_of_them():
    problem = DepthwiseConv1d(2, 3, 16, 3)
    host = arrays_of(problem)
    device = {name: cuda.to_device(np.concatenate([array, array])) for name, array in host.items()}
    views = {name: device[name][: len(host[name])] for name in host}
    stage("depthwise1d/forward/shared").run(problem, views)
    got = views["y"].copy_to_host()
    np.testing.assert_allclose(got, reference(problem, "forward", host)["y"], rtol=1e-5, atol=1e-5)
    assert np.isnan(device["y"].copy_to_host()[2:]).all()
