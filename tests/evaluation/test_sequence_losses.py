"""CTC against the enumeration of all alignments, and torch's loss; in `fit`, on every backend."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import log_softmax

from keras_seq.evaluation import CTC, CRFLoss, ctc_losses
from keras_seq.layers import LSTM

pytestmark = pytest.mark.any_backend
BACKEND = keras.backend.backend()
V, BLANK = 3, 2
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)
TARGETS = np.array([[0, 1, -1], [1, 1, -1], [-1, 0, 2], [2, -1, 2], [-1, -1, -1]], "int32")  # 2 is blank
numpy = ops.convert_to_numpy


def collapse(alignment, blank=BLANK):
    return tuple(label for label, _ in itertools.groupby(alignment) if label != blank)


def oracle(logits, labels):
    """-log p of the labels of one row without padding, and its gradient by the logits: all alignments."""
    log_p, one = log_softmax(logits.astype("float64"), axis=-1), np.eye(logits.shape[-1])
    aligned = [a for a in itertools.product(range(logits.shape[-1]), repeat=len(logits)) if collapse(a) == labels]
    scores = np.array([sum(log_p[t, k] for t, k in enumerate(a)) for a in aligned])
    total = np.logaddexp.reduce(scores, initial=-np.inf)
    counts = sum(np.exp(score - total) * one[list(a)] for score, a in zip(scores, aligned, strict=True))
    return -total, np.exp(log_p) - counts


def rows(logits):
    for row, mask in enumerate(MASK):
        labels = tuple(int(label) for label in TARGETS[row] if label not in (-1, BLANK))
        yield row, mask, *oracle(logits[row, mask], labels)


def test_losses_and_gradients_are_those_of_all_alignments_on_the_frames_only():
    logits = np.random.default_rng(0).normal(size=(*MASK.shape, V)).astype("float32")
    padded = np.where(MASK[..., None], logits, np.float32("nan"))
    losses, gradient = losses_and_gradient(
        lambda z: ctc_losses(z, TARGETS, ops.convert_to_tensor(MASK), BLANK), padded, jit_compile=True
    )
    for row, mask, loss, expected in rows(logits):
        np.testing.assert_allclose(losses[row], loss, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(gradient[row, mask], expected, atol=1e-5)
    assert (gradient[~MASK] == 0).all()


def losses_and_gradient(function, x, jit_compile=False):
    """Values, and the gradient of their sum; JAX compiles all."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def both(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return y, tape.gradient(y, x)

        both = tf.function(both, jit_compile=True) if jit_compile else both
        return [each.numpy() for each in both(tf.constant(x))]
    if BACKEND == "jax":
        import jax

        gradient = jax.jit(jax.grad(lambda x: (ops.sum(y := function(x)), y), has_aux=True))
        return [np.asarray(each) for each in reversed(gradient(x))]
    x = ops.convert_to_tensor(x).requires_grad_()
    y = function(x)
    y.sum().backward()
    return y.detach().numpy(), x.grad.numpy()


def test_of_longer_rows_it_is_that_of_torch():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(1)
    logits, lengths = random.normal(size=(4, 12, 6)).astype("float32"), np.array([12, 9, 7, 10])
    targets, label_lengths = random.integers(1, 6, size=(4, 5)), np.array([5, 3, 0, 4])
    z = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    by_time = z.log_softmax(-1).transpose(0, 1)
    arguments = [torch.tensor(each) for each in (targets, lengths, label_lengths)]
    expected = torch.nn.functional.ctc_loss(by_time, *arguments, reduction="none")
    expected.sum().backward()
    mask = np.arange(12) < lengths[:, None]
    padded = np.where(np.arange(5) < label_lengths[:, None], targets, 0)
    losses, gradient = losses_and_gradient(lambda z: ctc_losses(z, padded, ops.convert_to_tensor(mask)), logits)
    np.testing.assert_allclose(losses, expected.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(gradient, z.grad.numpy(), atol=1e-5)


def test_what_no_alignment_fits_is_infinite_and_moves_nothing():
    logits = np.random.default_rng(0).normal(size=(4, 3, V)).astype("float32")
    targets = np.array([[1, 1, 0], [0, 1, 0], [1, 1, -1], [V, -1, -1]])  # 1 - 1 0 needs four frames
    losses, gradient = losses_and_gradient(lambda z: ctc_losses(z, targets, blank=BLANK), logits)
    assert [np.isposinf(losses).tolist(), np.isnan(losses).tolist()] == [[True, *[False] * 3], [*[False] * 3, True]]
    assert not gradient[[0, 3]].any()
    assert np.isfinite(gradient[1:3]).all()


def test_in_fit_behind_a_layer_that_hands_its_mask_on_padding_changes_nothing():
    """Keras's own loss fails there: it multiplies losses of rows by a mask of frames (docs/masks.md)."""
    random = np.random.default_rng(0)
    ids, targets = random.integers(1, 5, size=(6, 7)), np.array([[1, 2]] * 6)
    ids[3:, 5:] = 0
    model = keras.Sequential(
        [keras.layers.Embedding(5, 4, mask_zero=True), LSTM(4, return_sequences=True), keras.layers.Dense(3)]
    )
    logits = numpy(model(ids))
    each = [numpy(ctc_losses(part, targets[:3])) for part in (logits[:3], logits[3:, :5])]
    model.compile(keras.optimizers.Adam(0.05), CTC(), jit_compile=False, run_eagerly=BACKEND == "tensorflow")
    assert model.evaluate(ids, targets, verbose=0) == pytest.approx(np.mean(each), rel=1e-5)
    history = model.fit(ids, targets, epochs=3, verbose=0, sample_weight=np.ones(6)).history["loss"]
    assert history[-1] < history[0]
    loss = CTC(blank=2, reduction="sum")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert (again.blank, again.reduction, type(again)) == (2, "sum", CTC)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ctc_losses(np.zeros((2, 3, 4), "float32"), np.zeros((2, 3))), "integers"),
        (lambda: ctc_losses(np.zeros((2, 3), "float32"), np.zeros((2, 3), int)), r"\[B, T, V\]"),
        (lambda: ctc_losses(np.zeros((2, 3, 4), "float32"), np.zeros((2, 3), int), blank=4), "blank=4"),
        (lambda: CTC(blank=-1), "blank=-1"),
        (lambda: ctc_losses(np.zeros((2, 3, 4), "float32"), np.zeros((2, 3), int), np.ones((2, 4), bool)), "mask has"),
    ],
)
def test_what_cannot_be_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("masked", [False, True])
def test_a_row_of_weight_0_counts_nowhere_whatever_it_holds(masked):
    random = np.random.default_rng(0)
    logits, weights = random.normal(size=(3, 4, V)).astype("float32"), np.array([0.5, 0, 2], "float32")
    targets = np.array([[0, 1], [1, 1], [1, -1]])
    tags, potentials = np.array([[0, 1, 2], [7, 1, 0], [2, 0, 1]]), random.normal(size=(3, 3, V, V)).astype("float32")
    for loss, y_true, y_pred in ((CTC(blank=BLANK), targets, logits), (CRFLoss(), tags, potentials)):
        expected = float(loss(y_true[[0, 2]], y_pred[[0, 2]], weights[[0, 2]]))
        expected *= 2 / 3 if isinstance(loss, CTC) else 1  # Keras's mean over rows
        bad = y_pred.copy()
        bad[1] = np.nan if masked else bad[1]
        for shape in ((3,), (3, 1)):
            assert float(loss(y_true, bad, weights.reshape(shape))) == pytest.approx(expected, rel=1e-5)
        rows = y_true[[0, 2]], y_pred[[0, 2]]
        assert float(loss(*rows, 2.0)) == pytest.approx(float(loss(*rows, np.full(2, 2.0))))
    too_short = CTC(blank=BLANK)([[1, 1], [1, 0]], np.zeros((2, 2, V), "float32"), np.array([0.0, 1.0]))
    assert np.isfinite(float(too_short))
