"""Exercise 11_3: two windows for one weight

The lesson's kernel makes two requests for each product: one for x, one for w. Two windows of the same channel need the
same weight. Write the kernel `two_windows(x, w, y, shift)`, in which a thread computes hour t of windows b and b + 1,
and reads each `w[h, j]` once for both: three requests for two products.

It is launched with a grid of (ceil(ceil(B/2)·H / 8), ceil(L/32)) blocks of (32, 8) threads, and `shift` is what it is
in the lesson: tap j of hour t reads hour t + shift - j. B may be odd. The check looks at the answer on the judge's
problems, at the sectors of each request, for float64, and counts the requests.
"""

from numba import float32  # noqa: F401

from dwlab import DepthwiseConv1d, cuda, stage
from dwlab.judge.exercises import run
from dwlab.judge.tools import Wrong, coalesced, convolution, convolves, drawn, float32_only, kernel, stored_by_a_thread
from dwlab.kernels.registry import Launch


@cuda.jit
def two_windows(x, w, y, shift):
    ### BEGIN SOLUTION
    t = cuda.blockIdx.y * 32 + cuda.threadIdx.x
    pair = cuda.blockIdx.x * 8 + cuda.threadIdx.y
    b = 2 * (pair // x.shape[1])
    h = pair % x.shape[1]
    if b < x.shape[0] and t < x.shape[2]:
        both = b + 1 < x.shape[0]
        one = two = float32(0)
        for j in range(w.shape[1]):
            s = t + shift - j
            if 0 <= s < x.shape[2]:
                weight = w[h, j]
                one += weight * x[b, h, s]
                if both:
                    two += weight * x[b + 1, h, s]
        y[b, h, t] = one
        if both:
            y[b + 1, h, t] = two
    ### END SOLUTION


HINTS = (
    "pair = cuda.blockIdx.x * 8 + cuda.threadIdx.y numbers pairs of windows by channels: which b and h is that?",
    "Read the weight into a variable, then use the variable twice. Text that says w[h, j] twice may read it twice.",
    "Two sums, one for each window, both float32. The second window may not exist: test b + 1 < x.shape[0] once.",
)


def launch_of(problem):
    """Warps of 32 hours, for pairs of windows by channels."""
    pairs = -(-problem.B // 2) * problem.H
    return Launch((-(-pairs // 8), -(-problem.L // 32)), (32, 8), (problem.shift,))


def judge(answer):
    """Right on the judge's problems, coalesced, float32 only, at most three requests where the lesson's has four."""
    two_windows = kernel(answer, "two_windows")
    text = convolves(two_windows, launch_of)
    plain = stage("depthwise1d/forward/coalesced")
    problems = [DepthwiseConv1d(8, 4, 48, 48)]
    for pairs in drawn(answer, (1, 5), (1, 5), (1, 5)):
        H, L, K = drawn(answer, (1, 9), (1, 150), (1, 40))
        padding = int(answer.random.integers(K))
        problems.append(DepthwiseConv1d(2 * pairs - int(answer.random.integers(2)), H, L, K, padding))
    for problem, report in [(one, convolution(two_windows, launch_of, one, answer, hints=HINTS)) for one in problems]:
        coalesced(report)
        float32_only(report, hints=HINTS[2:])
        stored_by_a_thread(report, "y", 2, HINTS)
        before, after = plain.traffic(problem).load_requests, report.totals.global_load_requests
        enough = before // problem.B // 2 * (3 * (problem.B // 2) + 2 * (problem.B % 2))
        if after > enough:
            raise Wrong(
                f"{report.what}: {after:,} load requests; the lesson's kernel makes {before:,} here, and {enough:,} "
                "are enough, three for each four of two windows.",
                HINTS[1:],
            )
    return f"{text}, in float32, coalesced, and {after:,} load requests in place of {before:,}."


if __name__ == "__main__":
    run(__file__)
