"""Dynamic evaluation: while it scores a text, a model learns from what it has already scored (Krause et al., 2018).

    for each segment of the text, from start to end:
        losses of the segment, by the weights w
        w <- w - learning_rate gradient / RMS of the gradients so far        of the mean loss of the segment, by Adam
        w <- w + decay (w_0 - w)                                             w_0: the weights before the text

No token is seen before it is scored. What repeats in a text, such as names or a style, costs less after a while. A
model that carries its state has segments of `segment_length` tokens; the gradient goes back to the start of one. With a
context length, a segment is a window that moves by half, as in the streaming loss. The weights are put back at the end.
arXiv:1709.07432. The defaults were chosen for LSTMs on text held out from tiny Shakespeare's training split.
"""

import dataclasses

import keras
import numpy as np
from keras import ops, tree

from keras_seq import checks
from keras_seq.evaluation.losses import TokenCrossEntropy, token_losses
from keras_seq.layers.base.state import tensors_in_order
from keras_seq.ops.compiled import compiled
from keras_seq.tracking.tracker import track_progress

PADDING = -1  # a target that does not count


@dataclasses.dataclass(frozen=True)
class DynamicEvaluation:
    """Configure how a model learns from a text while it scores it.

    Raises:
        ValueError: A value is out of its range.
    """

    learning_rate: float = 1e-3
    """Learning rate of Adam without momentum; 0 scores without learning."""
    decay: float = 3e-3
    """How much nearer each step brings the weights to those before the text; at least 0, at most 1."""
    segment_length: int = 64
    """Tokens of a segment, for a model that carries its state."""

    def __post_init__(self):
        """Check the fields."""
        checks.number("learning_rate", self.learning_rate, min_value=0)
        checks.number("decay", self.decay, min_value=0, max_value=1)
        checks.positive_integer("segment_length", self.segment_length)


@keras.saving.register_keras_serializable(package="keras_seq")
class Learner(keras.Model):
    """A model from ids, and the tensors of a state, to logits; Keras trains it. It is not built: the model is."""

    def __init__(self, model, structure):
        super().__init__()
        self.language_model, self.structure = model, structure

    def call(self, inputs):
        """Compute logits `[1, T, V]` of `[ids [1, T], *tensors of the state]`."""
        ids, *tensors = inputs
        state = {} if self.structure is None else {"state": tree.pack_sequence_as(self.structure, tensors)}
        return self.language_model(ids, **state, training=False)


@keras.saving.register_keras_serializable(package="keras_seq")
class DenseAdam(keras.optimizers.Adam):
    """Adam of whole gradients; TensorFlow's of an embedding has a row for each id, which Keras would square alone."""

    def apply(self, grads, trainable_variables=None):
        """Update the variables."""
        grads = [grad if grad is None else ops.zeros(grad.shape, grad.dtype) + grad for grad in grads]
        super().apply(grads, trainable_variables)


def dynamic_token_losses(model: keras.Model, ids: np.ndarray, adapt: DynamicEvaluation, context_length: int | None):
    """Return the losses of all ids but the first, float32 `[N - 1]`, each by what the model has learned before it.

    The context length is that of the windows; None for a model that carries its state.
    """
    before = [ops.convert_to_numpy(variable) for variable in model.variables]
    try:
        if context_length is None:
            segments = _segments(model, ids, adapt)
        else:
            segments = _windows(model, ids, adapt, min(context_length, len(ids) - 1))
        return np.concatenate([*segments])
    finally:
        for variable, value in zip(model.variables, before, strict=True):
            variable.assign(value)


def _segments(model, ids, adapt):
    """Yield the losses of each segment of a model that carries its state."""

    def scored(x, y, state):
        logits, state = model(x, state=state, training=False, return_state=True)
        return token_losses(logits, y), state

    score, state = compiled(scored, model), model.get_initial_state(1)
    learn, length = _learning(model, adapt, state), min(adapt.segment_length, len(ids) - 1)
    for start in track_progress(range(0, len(ids) - 1, length), len(ids)):
        part = ids[start : start + length + 1]
        missing = length + 1 - len(part)
        x, y = np.pad(part[:-1], (0, missing))[None], np.pad(part[1:], (0, missing), constant_values=PADDING)[None]
        losses, new_state = score(x, y, state)
        yield ops.convert_to_numpy(losses)[0, : len(part) - 1]
        learn(x, y, state)
        state = new_state


def _windows(model, ids, adapt, length):
    """Yield the new losses of each window; windows move by half, and the last one ends with the text."""
    score = compiled(lambda x, y: token_losses(model(x, training=False), y), model)
    learn, last, end = _learning(model, adapt, None), len(ids) - 1 - length, 0
    for start in track_progress([*range(0, last, max(1, length // 2)), last], len(ids)):
        x, y = ids[None, start : start + length], ids[None, start + 1 : start + length + 1]
        yield ops.convert_to_numpy(score(x, y))[0, end - start :]
        end = start + length
        learn(x, y, None)


def _learning(model, adapt, state):
    """Return a function that takes one step of learning from x, y and the state before them."""
    if not adapt.learning_rate:
        return lambda x, y, state: None
    first, learner, before = state, Learner(model, state), [ops.convert_to_numpy(v) for v in model.trainable_variables]
    learner.built = True
    learner.compile(DenseAdam(adapt.learning_rate, beta_1=0.0), TokenCrossEntropy())

    def learn(x, y, state):
        learner.train_on_batch([x, *([] if state is None else tensors_in_order(state, first))], y)
        if adapt.decay:
            for variable, value in zip(model.trainable_variables, before, strict=True):
                variable.assign(variable + adapt.decay * (value - variable))

    return learn
