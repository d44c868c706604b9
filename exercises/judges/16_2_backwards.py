"""The judge of exercise 16_2, and its hints."""

from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.tools import Wrong, agree, at_most, drawn, kernel, launched, poisoned, typical_first, values
from dwlab.kernels.parts import ptx  # noqa: F401

LENGTH = 128


@cuda.jit
def backwards(x, y):
    # Your code here.
    raise NotImplementedError("16_2 is not solved yet: replace this line with your code")


HINTS = (
    "tile = cuda.shared.array(LENGTH, float32, 16): the 16 aligns it to 16 bytes. Lane l brings piece l and wants "
    "piece 31 - l, its four elements in the other order.",
    "After the copy: commit, then wait, and then a barrier of the warp, since the piece that a lane wants was brought "
    "by another lane.",
    "ptx.copy4_async(tile, 4 * lane, x, LENGTH * row + 4 * lane); ptx.commit(); ptx.wait(0); cuda.syncwarp(); then "
    "load4_shared from LENGTH - 4 - 4 * lane, and store4 d, c, b, a.",
)


def judge(answer):
    """Right, no hazard; one asynchronous copy, one read and one store of 16 bytes a lane for each row."""
    backwards, launches = kernel(answer, "backwards"), []
    sizes = (1, 2, 7, 33, 8)
    for R in (*sizes, *drawn(answer, (7000, 9000), (34, 300))):
        x, y, what = values(answer, R, LENGTH, nan=True), poisoned(R, LENGTH), f"{R} × {LENGTH}"
        report = launched(backwards, R, 32, x, y, hints=HINTS, what=what)
        agree(y, x[:, ::-1], what, tolerance=0, hints=HINTS)
        launches.append((report, R))
    for report, R in typical_first(launches, len(sizes)):
        for array, kind, what in (("x", "load", "load x"), ("y", "store", "store y")):
            found = report.array(array, kind).requests
            at_most(found, R, f"requests {what}", "16 bytes a lane", HINTS, report)
        if report.copied != R:
            raise Wrong(
                f"{report.what}: {report.copied} of {R} rows come by one asynchronous copy; all must, "
                "and nothing of x goes through registers.",
                HINTS,
            )
        reads = sum(a.requests for a in report.accesses if a.space == "shared" and a.kind == "load")
        if reads > R or report.totals.bank_conflicts:
            raise Wrong(
                f"{report.what}: {reads} requests read shared memory, with {report.totals.bank_conflicts} "
                "bank conflicts; one for each row, without any, is enough.",
                HINTS,
            )
    return (
        f"Right for {len(launches)} sizes; {R} rows in {R} asynchronous copies, {reads} reads of shared memory and {R} "
        "stores."
    )
