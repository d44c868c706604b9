"""Answers that game an exercise: wrong or hollow ones, each made to get past what the judge looks at.

Most are made of the solutions by one edit each, a family at a time: a kernel that stops beyond a size, that does
nothing at the size where accesses are counted, or that writes to an input; predictions that agree with every number;
files that patch the judge. Kernels and numbers are judged in this process, since nothing of a kernel runs; the files
that patch are judged as students' files are.
"""

import re
import textwrap

import edits
import numpy as np
import pytest
from copies import needs_solutions
from test_exercises import IDS, JUDGE, ROOT, SOLUTIONS, answered, graded
from test_wrong_answers import edited as changed

from dwlab.judge import answer, exercises

pytestmark = [needs_solutions, pytest.mark.family(0.15, by=("kind", "what"))]

TEXTS = {i: s.read_text(encoding="utf-8") for i, s in zip(IDS, SOLUTIONS, strict=True)}

# Each kernel, an array that it reads, that array's dimensions, the most elements of it in any launch of a given (not a
# drawn) size, and how many it has where accesses are counted.
KERNELS = """
    00_1 hourly_change kwh 1 1024 1024, 01_1 skip x 3 2048 2048, 02_1 quarter picture 2 6144 6144,
    02_3 block_peak x 1 256 256, 10_1 mean_window x 3 4096 4096, 10_4 centred x 2 8192 8192,
    11_1 channels_last x 3 6144 6144, 11_3 two_windows x 3 1536 1536, 12_1 daily_peak kwh 2 1280 1280,
    12_4 tiled x 3 1200 1200, 13_1 totals kwh 2 1024 1024, 14_4 smooth x 2 864 768, 13_2 row_sums x 2 384 384,
    14_1 rise x 2 800 800, 15_1 running_peak x 2 3200 3200, 16_4 last_four x 2 1024 1024,
    20_1 two_hourly_grad dy 3 2048 2048, 20_3 short_tile_first x 3 2560 1536, 25_1 bias_parts dy 3 12288 12288,
    20_4 classes kwh 1 256 256, 25_2 column_sums terms 2 262144 262144, 16_2 backwards x 2 4224 1024,
    25_5 first_pass x 3 74880 8192, 24_1 momentum g 1 1024 1024, 24_4 step x 2 300 300, 27_1 pool x 3 6272 6272,
    28_2 column x 3 2048 2048, 29_1 four x 2 1960 1024, 30_2 three a 2 4096 128, 31_1 split x 2 1960 1024,
    32_1 twice w1 2 240 128, 33_1 expand x 3 1536 1536, 34_1 requantise sums 2 280 280, 34_3 less_zero a 2 640 256,
    36_2 mean x 2 3136 3136, 38_1 vectors x 1 768 768, 38_4 halved x 2 650 650, 38_5 ring x 2 600 600,
    40_3 block x 3 280 280, 50_1 kernel x 2 8192 8192, 50_2 kernel x 2 8192 8192, 50_3 kernel x 2 8192 8192,
    50_4 kernel x 3 32768 32768
"""
KERNELS = {
    exercise: (name, array, *map(int, numbers))
    for exercise, name, array, *numbers in map(str.split, KERNELS.split(","))
}


def edited(exercise: str, first: str = "", last: str = "") -> str:
    """The solution with statements before and after the body of its kernel."""
    name = KERNELS[exercise][0]
    text = TEXTS[exercise]
    begin = re.compile(rf"^def {name}\(.*\):\n", re.M).search(text).end()
    end = text.index("    ### END SOLUTION", begin)
    body = [textwrap.indent(textwrap.dedent(part), "    ") for part in (first, last)]
    return text[:begin] + body[0] + text[begin:end] + body[1] + text[end:]


def beyond(exercise: str) -> str:
    """Right up to the largest size that is always judged; beyond it nothing is done."""
    _, array, _, most, _ = KERNELS[exercise]
    return edited(exercise, f"if {array}.size > {most}:\n    return\n")


def hollow(exercise: str) -> str:
    """Nothing at all is done at the size where accesses are counted."""
    _, array, _, _, counted = KERNELS[exercise]
    return edited(exercise, f"if {array}.size == {counted}:\n    return\n")


def zeroed(exercise: str) -> str:
    """The input is left with a zero in it."""
    _, array, dimensions, _, _ = KERNELS[exercise]
    zeros = ", ".join("0" * dimensions)
    one = "cuda.blockIdx.x + cuda.blockIdx.y + cuda.blockIdx.z + cuda.threadIdx.x + cuda.threadIdx.y == 0"
    return edited(exercise, "", f"if {one}:\n    {array}[{zeros}] = 0\n")


def spared(exercise: str) -> str:
    """Few loads at the size that was always counted, a hundred more for each thread elsewhere."""
    _, array, dimensions, _, counted = KERNELS[exercise]
    one = f"{array}[{', '.join('0' * dimensions)}]"
    waste = f"for _ in range(100):\n        if {one} > {one}:\n            return\n"
    return edited(exercise, f"if {array}.size != {counted}:\n    {waste}")


def judged(tmp_path, exercise, text, seed=0):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(text, encoding="utf-8")
    return exercises._judge(path, exercises.known()[exercise], seed=seed)


def rejected(found):
    assert found["status"] == "wrong", (found["status"], found["message"])
    assert found["message"] and found["hints"]


@pytest.mark.parametrize("exercise", KERNELS)
def test_a_kernel_that_stops_beyond_a_size(tmp_path, exercise):
    for seed in (0, 1, 2):
        found = judged(tmp_path, exercise, beyond(exercise), seed)
        rejected(found)
        assert "never written" in found["message"] or "is right" in found["message"] or "problems" in found["message"]
    assert found["seed"] == (None if exercise in ("11_3", "20_3") else 2), "the verdict says what it was drawn from"


LOADS = (  # bounded
    "01_1 11_3 12_1 13_1 15_1 16_2 16_4 20_1 20_3 25_1 25_5 24_1 28_2 29_1 31_1 32_1 33_1 34_1 36_2 38_1 38_4 "
    "38_5".split()
)


GAMES = [(hollow, exercise, r"never written|is right|problems") for exercise in KERNELS]
GAMES += [(zeroed, exercise, "which is an input|[Rr]ace|two writers|input|problems") for exercise in KERNELS]
GAMES += [(spared, exercise, "enough|does not|needs") for exercise in LOADS]


@pytest.mark.family(0.15, by=("game",))
@pytest.mark.parametrize(("game", "exercise", "says"), GAMES, ids=[f"{one[0].__name__}-{one[1]}" for one in GAMES])
def test_a_kernel_that_does_little_where_it_is_counted_or_writes_to_its_input(tmp_path, game, exercise, says):
    found = judged(tmp_path, exercise, game(exercise))
    rejected(found)
    assert re.search(says, found["message"]), found["message"]


# what is asked for, and what was counted in its place


ASKED = [
    (exercise, what, " | ".join(says), changes) for exercise, (what, *says), changes in edits.rows("gaming_answers.txt")
]


@pytest.mark.parametrize(("exercise", "what", "says", "changes"), ASKED, ids=[f"{a[0]}: {a[1]}" for a in ASKED])
def test_what_is_asked_for_is_what_is_counted(tmp_path, exercise, what, says, changes):
    found = judged(tmp_path, exercise, changed(exercise, changes))
    rejected(found)
    assert re.search(says, found["message"]), found["message"]


# predictions

YES = """
class Yes(float):
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __sub__
    def __abs__(self): return 0.0
    def __eq__(self, other): return True
    def __le__(self, other): return True
    __ge__ = __lt__ = __gt__ = __le__
    def __float__(self): return self
    __hash__ = float.__hash__
"""
PREDICTED = [i for i in IDS if "predicted(" in TEXTS[i]]


def predictions(exercise: str) -> list[str]:
    stubs = re.findall(r"^# (\w+(?:, \w+)*) = None", TEXTS[exercise], re.M)
    return [name for names in stubs for name in names.split(", ")]


@pytest.mark.parametrize("exercise", PREDICTED)
@pytest.mark.parametrize("kind", ["Yes(1.375)", "[1.375]", "float('inf')", "np.array([1.375, 2])", "Yes"])
def test_a_number_that_agrees_with_everything(tmp_path, exercise, kind):
    code = "import numpy as np\n" + YES + "\n".join(f"{name} = {kind}" for name in predictions(exercise))
    found = judged(tmp_path, exercise, answered(exercise, code))
    rejected_number = re.search(r"you predicted 1.375 |it must be a number", found["message"])
    assert found["status"] == "wrong" and rejected_number, found["message"]


# files that reach for the verdict

FORGE = """
import json, os, sys
import dwlab.judge.answer, dwlab.judge.exercises, dwlab.judge.tools, dwlab.simt.launch, dwlab.simt.report
"""
PATCHES = {
    "agree": 'room = dwlab.judge.tools; room.agree = room.launched = room.kernel = lambda *a, **k: "fine"',
    "the judge's module": 'sys.modules["dwlab_judge"] = sys.modules[__name__]\ndef judge(answer): return "fine"',
    "main": 'import __main__\n__main__._judge = lambda *a, **k: {"status": "passed", "message": "", "hints": []}',
    "the verdict": 'dwlab.judge.exercises._verdict = lambda *a: {"status": "passed", "message": ""}',
    "the end of Python": "os._exit(0)",
    "the end at exit": "import atexit\natexit.register(os._exit, 0)",
    "a verdict on the screen": 'print(json.dumps({"status": "passed", "message": ""}))\nsys.stdout.flush()',
    "counts": "dwlab.simt.report.Totals.bank_conflicts = dwlab.simt.report.Totals.requests = 0",
    "the interpreter": "dwlab.simt.launch.execute = dwlab.simt.launch.xray = lambda *a, **k: None",
    "a kernel that is none": "class hourly_change:\n    py_func = None\n    def __class_getitem__(cls, how): ...",
    "a reply": "import pickle\nsent = pickle.dumps({'status': 'passed', 'message': 'Right.', 'names': ()})\n"
    "for one in range(3, 20):\n    try:\n        os.write(one, sent)\n"
    "    except OSError:\n        pass",
    "comparison": "import numpy as np\nnp.abs = lambda *a: np.zeros(1)\nnp.ndarray.all = None",
}


@pytest.fixture(scope="module")
def forged(tmp_path_factory):
    text = answered("00_1", "if cuda.grid(1) == 0:\n    change[0] = 1") + FORGE
    return graded(tmp_path_factory, {what: ("00_1", text + patch) for what, patch in PATCHES.items()}, seed=1)


@pytest.mark.parametrize("what", PATCHES)
def test_a_file_does_not_write_its_own_verdict(forged, what):
    result = forged[what]
    assert result.status in ("wrong", "error"), str(result)
    if what not in ("the end of Python", "a reply", "comparison", "a kernel that is none"):
        assert "kwh of shape (1,): element [0] is 1; 0 is right" in result.message, str(result)


def test_a_solution_is_not_looked_up(tmp_path):
    path = tmp_path / "24_2_answer.py"
    code = "import dwlab, pathlib\nfound = pathlib.Path(dwlab.__file__).parents[1] / 'solutions' / '24_2_epoch.py'\n"
    path.write_text(answered("24_2", code + "exec(found.read_text().split('###')[1])"), encoding="utf-8")
    result = exercises.judge_file(path, "24_2", judge=JUDGE)
    assert result.status == "error" and "may not open the solutions" in result.message
    assert exercises.judge_file(ROOT / "solutions" / "24_2_epoch.py", "24_2", judge=JUDGE).passed, "itself"


FASTEST = "return min(times, key=lambda at: times[at] or 1e9)"
PRYING = {
    "the judge": ("00_2", "import dwlab.judge.answer as room\nexec(next(room.JUDGES.glob('00_2*')).read_text())"),
    "a judge, from its folder": ("00_2", "import os, dwlab.judge.answer as room\nat = os.open(room.ROOT, os.O_RDONLY)\n"
                                 "os.open('solutions/00_2_sectors.py', os.O_RDONLY, dir_fd=at)"),
    "a judge, from where it runs": ("00_2", "import os\nat = os.open('.', os.O_RDONLY)\n"
                                    "os.open('../../etc/hosts', os.O_RDONLY, dir_fd=at)"),
    "the answers of a blind one": ("28_3", "from dwlab.judge.unseen import task\nfaults = task('28_3').faults"),
    "another blind one": ("29_2", "import importlib\nroom = importlib.import_module('dwlab.judge.unseen')\n"
                          "faults = room.task('29_2').faults"),
    "a blind one's text": ("38_3", "from dwlab.judge.answer import JUDGES\n"
                           "faults = next(JUDGES.glob('38_3*')).read_text()"),
    "all times, past the look-ups": ("41_2", "times = dict(recorded.items())\n" + FASTEST),
    "all times, by dict's own": ("41_2", "times = dict.copy(recorded)\n" + FASTEST),
    "all times, out of what it holds": ("41_2", "times = recorded._values\n" + FASTEST),
}  # fmt: skip


@pytest.fixture(scope="module")
def pried(tmp_path_factory):
    answers = {what: (exercise, answered(exercise, code)) for what, (exercise, code) in PRYING.items()}
    return graded(tmp_path_factory, answers, seed=1)


@pytest.mark.parametrize("what", PRYING)
def test_an_answer_does_not_see_what_it_is_graded_by(pried, what):
    result = pried[what]
    assert result.status == "error", str(result)
    says = "may not open|nowhere else|only looked up|has no attribute|descriptor 'copy'"
    assert re.search(says, result.message), result.message


def test_what_is_looked_up_one_by_one_comes_from_the_judge(tmp_path):
    path = tmp_path / "41_2_answer.py"
    path.write_text(TEXTS["41_2"], encoding="utf-8")
    assert exercises.judge_file(path, "41_2", seed=1, judge=JUDGE).passed
    asked = {"recorded[-1]": "KeyError: -1", "recorded[[0]]": "unhashable", "while 1: recorded[0]": "up more than"}
    for code, says in asked.items():
        path.write_text(answered("41_2", code), encoding="utf-8")
        assert says in exercises.judge_file(path, "41_2", seed=1, judge=JUDGE).message


EARLY = """
    between = cuda.shared.array((STEP, PIXELS), float32)
    sums = cuda.local.array(4, float32)
    lane, row = cuda.threadIdx.x, cuda.threadIdx.y
    m = cuda.blockIdx.x * PIXELS + lane
    if m >= x.shape[1]:
        return
    for k in range(4):
        sums[k] = 0
    for f0 in range(0, w1.shape[0], STEP):
        for i in range(row, STEP, ROWS):
            total = b1[f0 + i]
            for c in range(x.shape[0]):
                total += w1[f0 + i, c] * x[c, m]
            between[i, lane] = max(total, float32(0))
        cuda.syncthreads()
        for i in range(STEP):
            for k in range(4):
                sums[k] += w2[4 * row + k, f0 + i] * between[i, lane]
        cuda.syncthreads()
    for k in range(4):
        y[4 * row + k, m] = sums[k]
"""
RIGHT = {
    "arguments of other names": ("13_1", "def totals(kwh, total): => def totals(a, s):\n    kwh, total = a, s"),
    "a pair as a list": ("23_3", "return name, us[name] => return [name, us[name]]"),
    "functions by a name of their own": (
        "24_3", "import os\n => import os\nfrom os import replace\n", "os.replace(part, path) => replace(part, path)"
    ),
    "a thread that returns before the barriers of others": ("32_1", EARLY),
}  # fmt: skip


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_answer_may_be_written_otherwise(tmp_path, what):
    exercise, *changes = RIGHT[what]
    found = judged(tmp_path, exercise, changed(exercise, changes))
    assert found["status"] == "passed", found["message"]


def test_what_was_saved_is_read_by_another_process(tmp_path):
    code = "kept = {}\ndef save(path, state):\n    kept['it'] = dict(state)\n    open(path, 'wb').close()\n" + (
        "    os.replace(path, path)\n    os.fsync(0)\ndef load(path):\n    return kept['it']\n"
    )
    path = tmp_path / "24_3_answer.py"
    path.write_text(answered("24_3", code), encoding="utf-8")
    result = exercises.judge_file(path, "24_3", seed=1, judge=JUDGE)
    assert result.status in ("wrong", "error"), str(result)


def test_every_exercise_has_an_answer_that_games_it():
    repaired = [i for i in IDS if "remedied(" in TEXTS[i]]  # by repairs.txt
    gamed = *KERNELS, *(a[0] for a in ASKED), *PREDICTED, *(e for e, _ in PRYING.values()), "24_3"
    assert {*gamed, *repaired} == set(IDS)


def test_only_plain_data_comes_back():
    class Liar(int):
        def __index__(self):
            return 7

        def __repr__(self):
            return "41"

    for value in (True, None, 3, 2.5, 1j, "é", b"\0", (1, [2.0, {"a": (3,)}]), Ellipsis, float("inf"), 1 << 200):
        made = answer.plain(value)
        assert made == value and type(made) is type(value)
    for array in (np.arange(6, dtype=np.int8).reshape(2, 3), np.float32(1.5), np.zeros((0, 4)), np.array(True)):
        made = answer.plain(array)
        assert type(made) is type(array) and made.dtype == array.dtype and made.tobytes() == array.tobytes()
    assert type(answer.plain(Liar(5))) is int and answer.plain(Liar(5)) == 5
    assert answer.plain(object()).type == "object" and "20,001 bits" in answer.plain(1 << 20_000).text
