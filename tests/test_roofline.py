"""The roofline's maths, and that the plot says what the numbers say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dwlab.gpu.machine import Ceilings, MachineError, attainable, known
from dwlab.model import roofline
from dwlab.model.roofline import Roofline, RooflineError, point

CEILINGS = Ceilings(4000.0, 6500.0, 60.0, 19.0, True, "measured; a fake")
positive = st.floats(1e-3, 1e5)


@given(gbps=positive, tflops=positive)
def test_slope_and_peak_meet_at_the_ridge(gbps, tflops):
    ceilings = Ceilings(gbps, fma_tflops=tflops)
    corner = roofline.ridge(ceilings)
    assert attainable(corner, ceilings) == pytest.approx(1e3 * tflops)
    assert attainable(corner / 2, ceilings) == pytest.approx(500 * tflops)
    assert attainable(corner * 2, ceilings) == 1e3 * tflops


def test_what_is_not_known_is_not_guessed():
    bare = Ceilings(4000.0)
    assert roofline.ridge(bare) is None and roofline.ridge(CEILINGS, "l2") == pytest.approx(60000 / 6500)
    assert attainable(100, bare) == 400_000  # no FMA ceiling: the slope alone
    with pytest.raises(MachineError, match="L2 bandwidth is not known"):
        attainable(1, bare, "l2")
    with pytest.raises(MachineError, match="'l3' is unknown"):
        attainable(1, CEILINGS, "l3")


@given(flops=st.floats(1e3, 1e12), nbytes=st.floats(1e3, 1e10), share=st.floats(0.001, 1.0))
def test_a_points_fraction_is_its_share_of_the_roof(flops, nbytes, share):
    best_us = flops / attainable(flops / nbytes, CEILINGS) / 1e3
    made = point("k", flops, nbytes, best_us / share, CEILINGS)
    assert made.fraction == pytest.approx(share)
    assert made.gbps == pytest.approx(nbytes / (best_us / share) / 1e3)


@pytest.mark.parametrize("intensity, bound", [(1.0, "bandwidth"), (1000.0, "FMA")])
def test_a_point_above_its_ceiling_is_an_error_that_names_it(intensity, bound):
    flops = 1e9
    best_us = flops / attainable(intensity, CEILINGS) / 1e3
    point("k", flops, flops / intensity, best_us / 1.02, CEILINGS)  # within the noise of two medians
    with pytest.raises(RooflineError, match=f"k reaches .* 110 % of what its {bound} ceiling"):
        point("k", flops, flops / intensity, best_us / 1.1, CEILINGS)


def test_a_warm_timing_is_held_against_the_l2_only():
    flops, nbytes = 1e9, 1e9
    us = nbytes / 6000 / 1e3
    with pytest.raises(RooflineError):
        point("k", flops, nbytes, us, CEILINGS)
    assert point("k", flops, nbytes, us, CEILINGS, memory="l2").fraction == pytest.approx(6000 / 6500)
    with pytest.raises(RooflineError):
        point("k", flops, nbytes, us / 1.2, CEILINGS, memory="l2")


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_an_intensity_a_time_or_a_size_that_is_none_is_refused(bad):
    with pytest.raises(MachineError, match="positive number"):
        attainable(bad, CEILINGS)
    for numbers in ((bad, 1e6, 1.0), (1e6, bad, 1.0), (1e6, 1e6, bad)):
        with pytest.raises(RooflineError, match="positive number"):
            point("k", *numbers, CEILINGS)


POINTS = tuple(
    point(name, 4.93e9, 805e6, us, CEILINGS) for name, us in {"naive": 8884, "shared": 900, "tiled": 400}.items()
)


def test_the_plot_draws_each_ceiling_and_point_where_it_belongs():
    figure = roofline.plot(POINTS, CEILINGS, title="a GPU")
    (ax,) = figure.axes
    assert ax.get_xscale() == ax.get_yscale() == "log"
    lines = {line.get_label(): line for line in ax.get_lines()}
    dram = next(line for label, line in lines.items() if label.startswith("device copy 4,000 GB/s (measured)"))
    assert any(label.startswith("L2 reads 6,500 GB/s (measured)") for label in lines)
    assert any(label.startswith("float32 FMA 60.0 TFLOP/s (measured)") for label in lines)
    for x, y in zip(dram.get_xdata(), dram.get_ydata(), strict=True):
        assert y == pytest.approx(min(60_000, 4000 * x))
    drawn = [line for line in ax.get_lines() if line.get_linestyle() == "None"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in drawn] == [
        (pytest.approx(p.intensity), pytest.approx(p.gflops)) for p in POINTS
    ]
    low, high = ax.get_xlim()
    bottom, top = ax.get_ylim()
    for p in POINTS:
        assert low < p.intensity < high and bottom < p.gflops < top
    assert low < roofline.ridge(CEILINGS) < high and 60_000 < top


def test_points_differ_in_marker_and_in_grey_not_in_colour_alone():
    figure = roofline.plot(POINTS, CEILINGS)
    drawn = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == "None"]
    assert len({line.get_marker() for line in drawn}) == len(POINTS)
    styles = [line.get_linestyle() for line in figure.axes[0].get_lines() if line.get_linestyle() != "None"]
    assert len(set(styles)) == len(styles) == 3
    assert len(set(roofline.COLOURS)) == len(set(roofline.MARKERS)) == 7


def test_texts_hold_every_number_of_the_plot_and_call_no_datasheets_peak_measured():
    made = roofline.for_machine(known()["GeForce GTX 1660"])
    labels = [line.get_label() for line in made.figure().axes[0].get_lines()]
    for text in (*labels, made.alt):
        assert "measured" not in text and "device copy" not in text
    assert "peak of the memory 192 GB/s (datasheet)" in made.alt
    assert "datasheet, not measured" in made.caption
    made = Roofline(POINTS, CEILINGS, "a <GPU>", "Measured today.")
    for p in POINTS:
        for text in (made.alt, str(made.table()), made._repr_html_()):
            assert p.label in text and f"{p.gflops:,.0f}" in text and f"{100 * p.fraction:.1f} %" in text
    assert "device copy 4,000 GB/s" in made.alt
    page = made._repr_html_()
    assert 'alt="Roofline of a &lt;GPU&gt;' in page and "data:image/png;base64," in page and "Measured today." in page
    assert str(made).startswith("Roofline of a <GPU>")
    assert roofline.alt_text((), CEILINGS).endswith("No points.")
    assert len(roofline.plot((), Ceilings(100.0)).axes) == 1
