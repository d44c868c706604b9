"""Right kernels with one edit: the judge accepts none, and says which mistake it is.

Score of a mutation: 2 if the first finding, or the rule that holds exactly where it fails, names its class; 1 if a
later finding does, or a rule outside of which it never fails; else 0.
"""

import re

import edits
import pytest
from mutated import edited_place, judged, mutate
from mutations import CLASSES, SETS
from parts import cover, part

from dwlab.gpu import target
from dwlab.judge.check import check
from dwlab.judge.diagnosis import VAGUE
from dwlab.kernels.registry import stage

pytestmark = pytest.mark.skipif(target.mode == "gpu", reason="a GPU must not run kernels with races and wild accesses")

EVERY = [one for part in SETS.values() for one in part]
OPERATORS = sorted({one.op for one in EVERY})
MEAN = 1.5  # of each operator


def classes(one):
    """What is judged in every run: of each mistake, stage, and storage type of an operator one; each 24th row."""
    return one.kind, one.stage, (one.op, one.dtype), *([one] if one in EVERY[::24] else [])


ALWAYS = cover(EVERY, classes)
TAKEN = part("mutations", EVERY, classes, 0.01)


def score(verdict, kind):
    """2, 1 or 0, see the module."""
    named = re.compile(CLASSES[kind])
    first, *later = map(str, verdict.findings)
    if named.search(first) or (verdict.rule and named.search(verdict.rule.words)):
        return 2
    return int(any(map(named.search, later)) or bool(verdict.bound and named.search(verdict.bound.words)))


@pytest.mark.parametrize("op", OPERATORS)
def test_no_mutation_is_accepted_and_its_class_is_named(op):
    """Of an operator, in one test. The mean is of those that every run takes: it must not depend on what is drawn."""
    accepted, slips, scores = [], [], {}
    for one in (one for one in TAKEN if one.op == op):
        verdict = judged(mutate(one.stage, one.old, one.new, one.module), one.dtype)
        if verdict.passed:
            accepted.append(f"{one}: {one.new!r}")
        elif {"raises", "cannot be interpreted"} & set(verdict.patterns):  # a slip in the edit, not its mistake
            slips.append(f"{one}: {one.new!r}: {verdict}")
        else:
            scores[one] = score(verdict, one.kind)
    assert accepted == slips == []
    for name, rows in SETS.items():  # shown by pytest -s
        got = [scores[one] for one in rows if one in scores]
        print(f"{op:20s} {name:7s}{len(got):4d} mutations; of 2, 1, 0: {[got.count(points) for points in (2, 1, 0)]}")
    unnamed = "\n".join(f"{one}: {one.new!r}" for one, points in scores.items() if not points)
    of = scores if len(TAKEN) == len(EVERY) else {one: scores[one] for one in ALWAYS if one.op == op}
    assert sum(of.values()) / len(of) >= MEAN, f"{op}: {sorted(of.values())}; of no class:\n{unnamed}"


def test_the_table_covers_operators_storage_types_and_classes():
    assert len(EVERY) >= 300 and len(set(EVERY)) == len(EVERY)
    assert {one.dtype for one in EVERY} == {"float32", "float16", "bfloat16", "int8"}
    assert all({one.op for one in SETS[name]} == set(OPERATORS) for name in ("FIRST", "SECOND", "THIRD"))
    assert {one.kind for one in EVERY} <= set(CLASSES)
    for op in OPERATORS:
        assert sum(one.op == op for one in EVERY) >= 20, op


def test_every_edit_is_of_a_text_that_is_there():
    """Those that this run does not draw, too: a kernel's text was changed, and its edits were not."""
    for id, old, _, module in [*((one.stage, one.old, one.new, one.module) for one in EVERY), *edits.sparse(".*")]:
        edited_place(id, old, module)


def test_a_mutation_changes_nothing_but_itself():
    of = "fused/pwdw/map"
    before = stage(of)
    mutant = mutate(of, "_finish(layer.bias, ", "_finish(False, ")  # in a module that the stage imports
    assert stage(of) is before and mutant.id == of and mutant.kernel is not before.kernel
    from dwlab.kernels.parts import epilogue

    assert "_finish(layer.bias, " in open(epilogue.__file__, encoding="utf-8").read()
    assert not judged(mutant, "float32").passed
    check(of, dtype="float32", most=3, seed=1).raise_if_wrong()


@pytest.mark.parametrize(
    ("old", "said"), [("no such text", "is in no module"), ("uint32(", "times in"), ("c = uint32(at % C)\n", None)]
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
    verdict = judged(mutate("depthwise2d/forward/naive", "q = uint32(at % Q)", "q = uint32(at % P)"), "float32")
    assert not verdict.passed and verdict.patterns[0] not in VAGUE
