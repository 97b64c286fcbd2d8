import matplotlib.image
import numpy as np
import pytest

from keras_seq.callbacks import LossByPosition
from keras_seq.evaluation.evaluator import get_evaluator
from tests.callbacks.conftest import IDS, LENGTH, MODELS, VOCABULARY


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("most", "windows"), [(None, (len(IDS) - 1) // LENGTH), (5, 5)])
def test_it_is_the_mean_over_windows_from_the_zero_state(name, most, windows, randomize):
    model = randomize(MODELS[name].build_model(VOCABULARY.vocabulary_size))
    x, y = (IDS[start : start + windows * LENGTH].reshape(windows, LENGTH) for start in (0, 1))
    p = np.take_along_axis(log_softmax(model(x, training=False)), y[..., None], axis=-1)[..., 0]
    figures = LossByPosition(IDS, LENGTH, max_windows=most).compute_summaries(model).scalars
    assert figures.keys() == {"loss_by_position/0", "loss_by_position/7"}
    for name, value in figures.items():
        assert value == pytest.approx(-p[:, int(name.split("/")[1])].mean(), rel=1e-5)
    assert abs(figures["loss_by_position/0"] - figures["loss_by_position/7"]) > 1e-3


def test_it_shares_what_a_validation_has_compiled():
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    diagnostic = LossByPosition(IDS, LENGTH)
    diagnostic.compute_summaries(model)
    evaluator = get_evaluator(model)
    traces = evaluator._independent.experimental_get_tracing_count()
    evaluator.chunked_loss(IDS[: len(diagnostic.ids)], LENGTH)
    assert evaluator._independent.experimental_get_tracing_count() == traces > 0


def test_any_model_from_ids_to_logits_will_do(plain):
    assert LossByPosition(IDS, LENGTH).compute_summaries(plain).scalars["loss_by_position/0"] == pytest.approx(
        np.log(VOCABULARY.vocabulary_size), abs=0.3
    )


def test_the_picture_shows_the_curve(randomize, tmp_path):
    model = randomize(MODELS["lstm"].build_model(VOCABULARY.vocabulary_size))
    picture = LossByPosition(IDS, LENGTH).compute_summaries(model).images["loss_by_position"]
    assert picture.dtype == np.uint8
    height, width, channels = picture.shape
    assert (channels, height > 200, width < 640) == (3, True, True)
    blue = (picture[..., 2].astype(int) - picture[..., 0] > 80).any(axis=0)  # the line, left to right
    assert blue.sum() > width / 2
    matplotlib.image.imsave(tmp_path / "picture.png", picture)


@pytest.mark.parametrize(
    ("count", "length", "most"), [(LENGTH, LENGTH, 1), (0, LENGTH, None), (9, 0, 1), (9, 8, 0), (9, -1, None)]
)
def test_what_makes_no_window_is_refused(count, length, most):
    with pytest.raises(ValueError, match=f"{count} ids, length={length}, most={most}; expected"):
        LossByPosition(IDS[:count], length, max_windows=most)
