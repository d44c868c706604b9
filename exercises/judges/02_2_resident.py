"""The judge of exercise 02_2, and its hints."""

from dwlab.gpu.occupancy import occupancy
from dwlab.judge.tools import predicted

# Your code here.
many_registers = None
much_shared = None
small_blocks = None

CASES = {
    "many_registers": (
        (256, 96, 0),
        "A warp needs 32 × 96 registers. How many warps fit into a quarter of an SM's, and how many blocks is that?",
        "5 warps of 3,072 in each quarter's 16,384 registers are 20 warps: two blocks of 8, not two and a half.",
    ),
    "much_shared": (
        (128, 32, 48 * 1024),
        "How many times do 49 KiB fit into 228 KiB?",
        "4 blocks, and a block of 128 threads is 4 warps.",
    ),
    "small_blocks": (
        (32, 32, 0),
        "A block of 32 threads is one warp. How many blocks can an SM have?",
        "32 blocks, of one warp each, whatever else is free.",
    ),
}


def judge(answer):
    """Each number is compared with what the rules of allocation give."""
    texts = []
    for name, (block, *hints) in CASES.items():
        found = occupancy(*block, compute_capability=(9, 0))
        hints[1:1] = [f"What allows no more is: {' and '.join(found.limited_by)}."]
        texts.append(predicted(answer, name, found.warps_per_sm, "warps", hints))
    return "; ".join(texts) + "."
