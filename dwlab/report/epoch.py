"""The newest recorded epoch of training, a row a convolution: docs/results/training.md."""

from __future__ import annotations

from collections.abc import Sequence

from dwlab.records import epochs
from dwlab.text.tabular import Col, Markdown, of_rows, rounded

NOTHING = f"No epoch is recorded yet. On a GPU with PyTorch: `{epochs.COMMAND}`.\n"


def epoch_table(runs: Sequence[epochs.EpochRun] | None = None) -> Markdown:
    """The newest recorded epoch, a row a way, slowest first: time, Amdahl's prediction, loss curves."""
    runs = epochs.load_all() if runs is None else list(runs)
    if not runs:
        return Markdown(NOTHING)
    run, naive = runs[-1], runs[-1].naive
    columns = [
        Col("convolution", epochs.label, left=True),
        Col("epoch (s)", "epoch_s", rounded),
        Col("step (ms)", "step_ms", rounded),
        Col("in a graph (ms)", "graph_ms", rounded),
        Col("convolution (ms)", "convolution_ms", rounded),
        Col("its share", "share", lambda share: f"{100 * share:.0f} %"),
        Col("× naive", lambda one: naive and naive.epoch_s / one.epoch_s, "{:.2f}".format),
        Col("Amdahl's × naive", lambda one: naive and naive.step_ms / one.predicted_ms(naive), "{:.2f}".format),
        Col("loss curve differs by", lambda one: None if naive in (None, one) else one.loss_difference(naive),
            "{:.1e}".format),
    ]  # fmt: skip
    made = run.experiment
    return of_rows(columns, sorted(run.ways, key=lambda one: -one.epoch_s), [
        *(f"{way} was not measured: {why}." for way, why in run.failed.items()),
        f"An epoch here is {made['steps']} steps of {made['batch']:,} windows, drawn from {made['windows']:,}; "
        f"{made['blocks']} blocks of {made['channels']} channels, {made['hours']} hours, {made['taps']} taps; "
        f"{made['precision']}; seed {made['seed']}. Steps run eagerly; beside them, replayed from a CUDA graph. The "
        "convolution's time is that of the operator and its two gradients alone, times the blocks. Amdahl's law takes "
        "the naive step and exchanges its convolution.",
        f"Measured on {run.where()}.",
    ])  # fmt: skip
