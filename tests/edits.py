"""Tables of edits as text: wrong_answers.txt and mutations.txt.

`## GROUP` begins a group, `# HEAD` a row of it. Below its head stands what a row changes: `old => new`; or `-` and `+`
before each line of the one and the other; lines that are added, with `+` alone; or, after `answer:`, another text.
"""

import re
from pathlib import Path


def rows(name: str) -> list[tuple[str, list[str], list[str]]]:
    """(group, parts of the head, changes) of each row of a file beside this one; a change is as `changes` gives it."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [
        (group, head.split(" | "), changes(body))
        for group, lines in re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", text)
        for head, body in re.findall(r"(?ms)^# ([^\n]*)\n(.*?)(?=^# |\Z)", lines)
    ]


def sections(path: Path) -> list[tuple[str, str]]:
    """(head, lines below it) of each `## HEAD` of a file."""
    return re.findall(r"(?m)^## (.*)\n((?:(?!## ).*\n)*)", path.read_text(encoding="utf-8"))


def sparse(wanted: str) -> list[tuple[str, ...]]:
    """(stage, old, new, module) of rows of sparse_edits.txt, those of groups that a pattern is of."""
    return [
        (f"sparse/forward/{group.partition(':')[0]}", *edit.split(" => "), module)
        for group, (module,), edits in rows("sparse_edits.txt") if re.fullmatch(wanted, group) for edit in edits
    ]  # fmt: skip


def changes(body: str) -> list[str]:
    """The changes of a row's lines: "old => new", "+ lines", or another text, which begins with an empty line."""
    text, answer, another = body.partition("answer:\n")
    found = [f"\n{another}"] if answer else []
    for old, new, line in re.findall(r"(?m)((?:^-.*\n)*)((?:^\+.*\n)*)(^[^-+\n].*\n)?", text):
        plus = "\n".join(one[2:] for one in new.splitlines())
        if old:
            found.append("\n".join(one[2:] for one in old.splitlines()) + f" => {plus}")
        elif new:
            found.append(f"+ {plus}")
        if line:
            found.append(line.rstrip("\n"))
    return found
