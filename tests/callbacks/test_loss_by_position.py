import numpy as np
import pytest
from scipy.special import log_softmax

from keras_seq.callbacks import LossByPosition
from keras_seq.callbacks.diagnostics import plot_loss_by_position, quarter_means
from keras_seq.evaluation.evaluator import get_evaluator
from keras_seq.evaluation.streaming import sample_windows
from tests.callbacks.conftest import IDS, LENGTH, MODELS, VOCABULARY


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("max_windows", "windows"), [(None, (len(IDS) - 1) // LENGTH), (5, 5)])
def test_it_is_the_mean_over_windows_from_the_zero_state(name, max_windows, windows, randomize):
    model = randomize(MODELS[name].build_model(VOCABULARY.vocabulary_size))
    sample = sample_windows(np.asarray(IDS), LENGTH, windows)
    starts = np.arange(windows) * LENGTH if sample is None else sample.window_starts
    assert len(starts) == windows
    x, y = (np.asarray(IDS)[starts[:, None] + np.arange(first, first + LENGTH)] for first in (0, 1))
    p = np.take_along_axis(
        log_softmax(np.asarray(model(x, training=False), "float64"), axis=-1), y[..., None], axis=-1
    )[..., 0]
    summaries = LossByPosition(IDS, LENGTH, max_windows=max_windows).compute_summaries(model)
    losses = -p.mean(axis=0)
    assert summaries.scalars == {f"loss_by_position/{t}": pytest.approx(losses[t], rel=1e-5) for t in (0, LENGTH - 1)}
    assert abs(losses[0] - losses[7]) > 1e-3
    means = {"0": losses[0], "6 to 7": losses[6:].mean()}
    assert summaries.curves == {f"loss_by_position/{name}": pytest.approx(v, rel=1e-5) for name, v in means.items()}
    assert summaries.descriptions["loss_by_position/6 to 7"] == "Loss at positions 6 to 7 (nats per token)."


def test_the_end_of_the_window_has_a_curve_whatever_its_length():
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    assert [*LossByPosition(IDS, 12).compute_summaries(model).curves] == [
        *("loss_by_position/0", "loss_by_position/6 to 7", "loss_by_position/9 to 11")
    ]
    assert [*LossByPosition(IDS, 3).compute_summaries(model).curves] == ["loss_by_position/0", "loss_by_position/2"]


def test_a_quarter_is_a_band_of_equal_width_on_the_logarithmic_axis():
    losses = np.random.default_rng(0).normal(size=70)
    means, starts = quarter_means(losses)
    assert [int(starts[t]) for t in (0, 1, 7, 63)] == [0, 1, 6, 48]
    for t in range(70):
        assert means[t] == pytest.approx(losses[starts[t] : t + 1].mean())


def test_it_shares_what_a_validation_has_compiled():
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    diagnostic = LossByPosition(IDS, LENGTH)
    diagnostic.compute_summaries(model)
    evaluator = get_evaluator(model)
    traces = evaluator._independent.num_traces()
    evaluator.chunked_loss(IDS[: len(diagnostic.ids)], LENGTH)
    assert evaluator._independent.num_traces() == traces > 0


def test_the_image_shows_the_curve(randomize):
    model = randomize(MODELS["lstm"].build_model(VOCABULARY.vocabulary_size))
    image = LossByPosition(IDS, LENGTH).compute_summaries(model).images["loss_by_position"]
    assert image.dtype == np.uint8
    height, width, channels = image.shape
    assert (channels, height > 200, width < 640) == (3, True, True)
    blue = (image[..., 2].astype(int) - image[..., 0] > 80).any(axis=0)  # the line, left to right
    assert blue.sum() > width / 2


def test_plots_of_models_of_one_vocabulary_have_one_vertical_axis():
    """So the axes of a good and of a bad model are the same pixels, up to the curve."""
    good, bad = (plot_loss_by_position(np.full(8, loss), 9, 100) for loss in (0.5, 4.0))
    axes = np.s_[:, :40]  # ticks and their labels
    np.testing.assert_array_equal(good[axes], bad[axes])
    assert (good != bad).any()


@pytest.mark.parametrize(
    ("count", "length", "max_windows"), [(LENGTH, LENGTH, 1), (0, LENGTH, None), (9, 0, 1), (9, 8, 0), (9, -1, None)]
)
def test_what_makes_no_window_is_refused(count, length, max_windows):
    with pytest.raises(ValueError, match=r"LossByPosition: .*(length|max_windows)=-?\d+; expected"):
        LossByPosition(IDS[:count], length, max_windows=max_windows)
