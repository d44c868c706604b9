"""Large families of tests: what a run takes of one, and the count of what it leaves out.

Each class has a member in every run, of the others a share is drawn anew in each run. The seed is in the
last lines of the run (conftest.py), with what was left out; DWLAB_TESTS_SEED repeats it, `pytest --whole` leaves out
nothing.
"""

import collections
import os
import random
import secrets

SEED = "DWLAB_TESTS_SEED"
WHOLE = "DWLAB_TESTS_WHOLE"
LEFT_OUT = collections.Counter()
"""(family's name, its members) -> how many of them this run leaves out."""


def begin(whole):
    """Sets the seed and the extent of a run, in the environment: its workers are to take the same."""
    os.environ.setdefault(SEED, str(secrets.randbelow(10**6)))
    if whole:
        os.environ[WHOLE] = "1"


def cover(members, classes):
    """Of members in their order so few that each class has one: again and again the first with most that lack one."""
    of = {at: set(classes(one)) or {""} for at, one in enumerate(members)}
    missing, taken = set().union(*of.values()), set()
    while missing:
        best = max(of, key=lambda at: len(of[at] & missing))
        missing -= of[best]
        taken.add(best)
    return [members[at] for at in sorted(taken)]


def part(name, members, classes=lambda one: ("",), share=0.1):
    """The members of a family that this run takes, in their order. classes: those of a member."""
    members = list(members)
    if os.environ.get(WHOLE):
        return members
    rng = random.Random(f"{os.environ.get(SEED)} {name}")
    fixed = set(map(id, cover(members, classes)))
    taken = [one for one in members if rng.random() < share or id(one) in fixed]
    LEFT_OUT[name, len(members)] = len(members) - len(taken)
    return taken


def most(count):
    """So many problems of a judge, or examples of a property; four times as many with --whole."""
    return 4 * count if os.environ.get(WHOLE) else count


def said(left_out):
    """The line at the end of a run."""
    out, of = collections.Counter(), collections.Counter()
    for (name, members), count in left_out.items():
        out[name.partition(":")[0]] += count
        of[name.partition(":")[0]] += members
    told = ", ".join(f"{out[name]} of {of[name]} in {name}" for name in sorted(of) if out[name])
    return f"left out of large families, with seed {os.environ.get(SEED)}: {told}; --whole runs all" if told else ""
