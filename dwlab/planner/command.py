"""``python -m dwlab plan``: a network's plan as a table, as JSON, as a picture, or beside measured times."""

from __future__ import annotations

import json
from argparse import Namespace

from dwlab.planner import plan
from dwlab.planner.judgement import judged
from dwlab.planner.modules import PlanError, Rules
from dwlab.planner.picture import describe, draw


def main(options: Namespace) -> int:
    """``python -m dwlab plan``: the table of a network's plan, its JSON, or its picture."""
    rules = Rules(options.objective, kernels=options.kernels)
    made = plan(
        options.network, options.gpu, dtype=options.dtype, batch=options.batch, rules=rules,
        layout=options.layout or ("NHWC" if options.judged else "NCHW"),  # what networks are measured in
    )  # fmt: skip
    if options.picture:
        try:
            draw(made).savefig(
                options.picture, format="png", metadata={"Software": None, "Description": describe(made)}
            )
        except OSError as error:
            raise PlanError(
                f"cannot write {options.picture}: {error.strerror}; give a file in a folder that is there"
            ) from None
    if options.judged:
        found = judged(made)
        print(json.dumps(found.to_dict(), indent=1, ensure_ascii=False) if options.json else found)
        return 0
    print(json.dumps(made.to_dict(), indent=1, ensure_ascii=False) if options.json else made)
    return 0
