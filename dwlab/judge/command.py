"""``python -m dwlab check``: the judge of a stage or of a kernel of one's own, from the command line."""

from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import json
import sys
from dataclasses import asdict

from dwlab.judge.causes import KINDS
from dwlab.kernels import registry
from dwlab.kernels.command import is_own, own_kernel, problem_of, whole_id
from dwlab.text import commandline
from dwlab.text.commandline import UserError


def register(command: commandline.Register) -> None:
    """Adds `check`."""
    add = command("check", main, "example: python -m dwlab check depthwise1d/forward/shared --seed 7").add_argument
    add("stage", metavar="OP/PATH/STAGE", help=commandline.OWN)
    add("--problem", metavar="P", help=f"{commandline.PROBLEMS} (default: a family, and others drawn anew)")
    add("--seed", type=commandline.whole(), metavar="N", help="a verdict's, for its problems and inputs")
    add("--tolerance", type=commandline.positive, metavar="R", help="of your own kernel, relative to each element")
    add("--allow", action="append", default=[], choices=KINDS, help="a hazard that is meant")


def main(options: argparse.Namespace) -> int:
    """Runs a stage on problems chosen to break it, and says what is wrong and where to look.
    For a kernel of your own: FILE.py:KERNEL, where FILE.py has a function example() that returns
    (grid, block, *arguments) and a function want(*arguments) that does on NumPy arrays what the
    kernel does; FILE.py:KERNEL:EXAMPLE:WANT takes other functions'. Status 1 if it is wrong.
    """
    own = is_own(options.stage)
    stage = None if own else registry.stage(whole_id(options.stage))
    for name in ("problem", "seed") if own else ("tolerance",):
        if getattr(options, name) is not None:
            raise UserError(f"--{name} goes with a {'stage' if own else 'kernel of your own, FILE.py:KERNEL'}")
    from dwlab.judge.check import check  # after what refuses a name: it imports Numba

    with contextlib.redirect_stdout(sys.stderr if own or options.json else sys.stdout):  # kernel and want may print
        if own:
            kernel, grid, block, args, want, module = own_kernel(options.stage, "want")
            example = getattr(module, (options.stage.split(":")[2:] or ["example"])[0] or "example")
            if inspect.signature(example).parameters:  # of sizes: several are tried
                grid, block, args = (
                    functools.wraps(example)(lambda at=at, **size: example(**size)[at]) for at in (0, 1, slice(2, None))
                )
            how = {"want": want, "args": args, "grid": grid, "block": block, "tolerance": options.tolerance}
            found = check(kernel, allow=options.allow, **how)
        else:
            problem = None if options.problem is None else problem_of(stage, options.problem, "")
            found = check(stage, problem, seed=options.seed, allow=options.allow)
    if options.json:
        names = ("subject", "path", "seed", "outputs", "wrong", "size", "notes", "hints", "passed")
        plain = {name: getattr(found, name) for name in names if hasattr(found, name)}
        if stage:
            plain |= {"problems": len(found.results), "failed": len(found.failures)}
        plain["findings"] = [asdict(one) for one in found.findings]
        print(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        lines = [line for line in str(found).splitlines() if not line.startswith("Hints: ")]
        print(*lines, *(f"hint {n}: {one}" for n, one in enumerate(found.hints if stage else (), 1)), sep="\n")
    return 0 if found.passed else 1
