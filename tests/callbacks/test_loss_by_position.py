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
@pytest.mark.parametrize(("max_windows", "windows"), [(None, (len(IDS) - 1) // LENGTH), (5, 5)])
def test_it_is_the_mean_over_windows_from_the_zero_state(name, max_windows, windows, randomize):
    model = randomize(MODELS[name].build_model(VOCABULARY.vocabulary_size))
    x, y = (IDS[start : start + windows * LENGTH].reshape(windows, LENGTH) for start in (0, 1))
    p = np.take_along_axis(log_softmax(model(x, training=False)), y[..., None], axis=-1)[..., 0]
    scalars = LossByPosition(IDS, LENGTH, max_windows=max_windows).compute_summaries(model).scalars
    assert scalars.keys() == {"loss_by_position/0", "loss_by_position/7"}
    for name, value in scalars.items():
        assert value == pytest.approx(-p[:, int(name.split("/")[1])].mean(), rel=1e-5)
    assert abs(scalars["loss_by_position/0"] - scalars["loss_by_position/7"]) > 1e-3


def test_it_shares_what_a_validation_has_compiled():
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    diagnostic = LossByPosition(IDS, LENGTH)
    diagnostic.compute_summaries(model)
    evaluator = get_evaluator(model)
    traces = evaluator._independent.experimental_get_tracing_count()
    evaluator.chunked_loss(IDS[: len(diagnostic.ids)], LENGTH)
    assert evaluator._independent.experimental_get_tracing_count() == traces > 0


def test_any_model_from_ids_to_logits_works(plain):
    assert LossByPosition(IDS, LENGTH).compute_summaries(plain).scalars["loss_by_position/0"] == pytest.approx(
        np.log(VOCABULARY.vocabulary_size), abs=0.3
    )


def test_the_image_shows_the_curve(randomize, tmp_path):
    model = randomize(MODELS["lstm"].build_model(VOCABULARY.vocabulary_size))
    image = LossByPosition(IDS, LENGTH).compute_summaries(model).images["loss_by_position"]
    assert image.dtype == np.uint8
    height, width, channels = image.shape
    assert (channels, height > 200, width < 640) == (3, True, True)
    blue = (image[..., 2].astype(int) - image[..., 0] > 80).any(axis=0)  # the line, left to right
    assert blue.sum() > width / 2
    matplotlib.image.imsave(tmp_path / "image.png", image)


@pytest.mark.parametrize(
    ("count", "length", "max_windows"), [(LENGTH, LENGTH, 1), (0, LENGTH, None), (9, 0, 1), (9, 8, 0), (9, -1, None)]
)
def test_what_makes_no_window_is_refused(count, length, max_windows):
    with pytest.raises(ValueError, match=f"{count} ids, sequence_length={length}, max_windows={max_windows}; expected"):
        LossByPosition(IDS[:count], length, max_windows=max_windows)
