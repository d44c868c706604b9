"""Right kernels with one edit: the judge accepts none, and says which mistake it is.

Score of a mutation: 2 if the first finding, or the rule that holds exactly where it fails, names its class; 1 if a
later finding does, or a rule outside of which it never fails; else 0.
"""

import ast
import re

import pytest
from mutated import judged, mutate
from mutations import CLASSES, FIFTH, FIRST, FOURTH, SECOND, THIRD

from dwlab import target
from dwlab.check import check
from dwlab.diagnosis import VAGUE
from dwlab.stages import stage

pytestmark = pytest.mark.skipif(target.mode == "gpu", reason="a GPU must not run kernels with races and wild accesses")

EVERY = FIRST + SECOND + THIRD + FOURTH + FIFTH
MEAN = 1.5  # of each operator
_scores: dict = {}


def score(verdict, kind):
    """2, 1 or 0, see the module."""
    named = re.compile(CLASSES[kind])
    first, *later = map(str, verdict.findings)
    if named.search(first) or (verdict.rule and named.search(verdict.rule.words)):
        return 2
    return int(any(map(named.search, later)) or bool(verdict.bound and named.search(verdict.bound.words)))


@pytest.mark.parametrize("one", EVERY, ids=[f"{i}-{one}" for i, one in enumerate(EVERY)])
def test_no_mutation_is_accepted(one):
    verdict = judged(mutate(one.stage, one.old, one.new, one.module), one.dtype)
    assert not verdict.passed, f"{one}: {one.new!r} is accepted"
    assert not {"raises", "cannot be interpreted"} & set(verdict.patterns), verdict  # the edit, not a slip in it
    _scores[one] = score(verdict, one.kind)


def test_the_class_is_named_for_each_operator(capsys):
    if len(_scores) < len(EVERY):
        pytest.skip("only where all mutations were judged before")
    named = {"FIRST": FIRST, "SECOND": SECOND, "THIRD": THIRD, "FOURTH": FOURTH, "FIFTH": FIFTH}
    parts = {**named, "all": EVERY}
    with capsys.disabled():
        for name, part in parts.items():
            print(f"\n{name:26s} mutations    2    1    0  mean")
            for op, got in _by_operator(part).items():
                counts = "".join(f"{got.count(points):5d}" for points in (2, 1, 0))
                print(f"{op:26s} {len(got):9d}{counts}  {sum(got) / len(got):.2f}")
        for one in (one for one in EVERY if not _scores[one]):
            print(f"0: {one}: {one.new!r}")
    assert {op: got for op, got in _by_operator(EVERY).items() if sum(got) / len(got) < MEAN} == {}


def _by_operator(part):
    rows = {}
    for one in part:
        rows.setdefault(one.op, []).append(_scores[one])
    return dict(sorted(rows.items()))


def test_the_table_covers_operators_storage_types_and_classes():
    every = EVERY
    assert len(every) >= 300 and len(set(every)) == len(every)
    assert {one.dtype for one in every} == {"float32", "float16", "bfloat16", "int8"}
    assert {one.op for one in FIRST} == {one.op for one in SECOND} == {one.op for one in THIRD}
    assert {one.kind for one in every} <= set(CLASSES)
    for op in {one.op for one in every}:
        assert sum(one.op == op for one in every) >= 20, op


def test_a_mutation_changes_nothing_but_itself():
    of = "fused/pwdw/map"
    before = stage(of)
    mutant = mutate(of, "_finish(layer.bias, ", "_finish(False, ")  # in a module that the stage imports
    assert stage(of) is before and mutant.id == of and mutant.kernel is not before.kernel
    from dwlab import epilogue

    assert "_finish(layer.bias, " in open(epilogue.__file__, encoding="utf-8").read()
    assert not judged(mutant, "float32").passed
    check(of, dtype="float32", most=3, seed=1).raise_if_wrong()


@pytest.mark.parametrize(
    ("old", "said"),
    [("no such text", "is in no module"), ("uint32(", "times in"), ("c = uint32(at % C)\n", None)],
)
def test_an_edit_must_be_found_once(old, said):
    if said is None:
        with pytest.raises(SyntaxError):
            mutate("depthwise2d/forward/naive", old, "c = = 1\n")
    else:
        with pytest.raises(ValueError, match=said):
            mutate("depthwise2d/forward/naive", old, "")


def test_new_texts_are_python_and_no_comment():
    for one in EVERY:
        assert one.old != one.new and one.old.strip()
        assert "#" not in one.new, one


def test_vague_findings_come_last():
    """One that says no more than that something is wrong gives way to the rule of the failing problems."""
    mutant = mutate("depthwise2d/forward/naive", "q = uint32(at % Q)", "q = uint32(at % P)")
    verdict = judged(mutant, "float32")
    assert not verdict.passed and verdict.patterns[0] not in VAGUE
    assert ast.literal_eval(repr(verdict.to_dict()))["patterns"][0] == verdict.patterns[0]
