"""Several language models as one: the mean of their probabilities.

    p(next) = 1/M sum_m softmax(logits_m),     logits = log p

Its nats are at most the mean of the members' nats, at every position, for -log is convex. Models that begin to know
their text by heart err each in its own way, and then the mean is much better than any of them (Hansen & Salamon, 1990;
Zaremba et al., 2014, for LSTMs).
"""

import math

import keras
from keras import ops

from keras_seq.layers.precision import at_least_float32
from keras_seq.layers.residual import check_states
from keras_seq.models.id_checks import as_ids
from keras_seq.models.language_model import LanguageModel, check_step


@keras.saving.register_keras_serializable(package="keras_seq")
class Ensemble(keras.Model):
    """Answers the two calls of a `LanguageModel` with the mean of its members.

        model = Average([LSTM(units=360).build(65), LSTM(units=360).build(65)])

    Members are trained one by one, each from another seed; the mean has nothing to train.

    Args:
        members: built `LanguageModel`s over one vocabulary, two or more or a single one.

    The state is a tuple with the state of each member. `context` is the shortest of the members' contexts, None where
    no member has one.

    Raises:
        ValueError: no member, one that stands there twice or is no language model, or members whose logits are over
            different vocabularies.
    """

    def __init__(self, members, **kwargs):
        super().__init__(**kwargs)
        members = list(members)
        if not members or len({id(member) for member in members}) < len(members):
            raise ValueError(f"members: {len(members)} given; expected one or more, each of them once.")
        strangers = [member.name for member in members if not isinstance(member, (LanguageModel, Ensemble))]
        if strangers:
            raise ValueError(f"{strangers[0]} is no language model; expected members that predict the next id.")
        sizes = sorted({member.compute_output_spec(keras.KerasTensor((1, 1), "int32")).shape[-1] for member in members})
        if len(sizes) > 1:
            raise ValueError(
                f"members over vocabularies of {' and '.join(map(str, sizes))} ids; expected one vocabulary."
            )
        self.autocast = False  # the members cast what they take; the states keep their own dtypes
        self.members = members
        context_lengths = [member.context_length for member in members if member.context_length is not None]
        self.context_length = min(context_lengths, default=None)

    def build(self, input_shape):
        """Nothing: the members have all the weights."""

    def get_initial_state(self, batch_size):
        """The state before the first position of `batch_size` texts."""
        return tuple(member.get_initial_state(batch_size) for member in self.members)

    @property
    def input_dtype(self):
        """That of ids: Keras's `export` would hand in floats."""
        return "int32"

    def __call__(self, ids=None, *args, **kwargs):
        """The model over ids `[B, T]`: a tensor, an array or a list."""
        return super().__call__(as_ids("ids", ids), *args, **kwargs)

    def call(self, ids, state=None, training=None, return_state=False):
        check_states(self.members, state)
        if state is None and return_state:
            state = self.get_initial_state(ops.shape(ids)[0])
        if state is None:
            answers = [(member(ids, training=training), None) for member in self.members]
        else:
            answers = [
                member(ids, state=own, training=training, return_state=True)
                for member, own in zip(self.members, state, strict=True)
            ]
        logits = log_mean_probability([logits for logits, _ in answers])
        return (logits, tuple(own for _, own in answers)) if return_state else logits

    def step(self, ids, state):
        """One position: ids `[B, 1]` and the state -> (logits `[B, V]`, state)."""
        check_step(ids, state)
        logits, state = self(ids, state=state, training=False, return_state=True)
        return logits[:, -1], state

    def get_config(self):
        members = [keras.saving.serialize_keras_object(member) for member in self.members]
        return {**super().get_config(), "members": members}

    @classmethod
    def from_config(cls, config):
        """Revives the members too."""
        revived = [keras.saving.deserialize_keras_object(member) for member in config["members"]]
        return cls(**{**config, "members": revived})


def log_mean_probability(logits):
    """A list of logits `[..., V]` -> the logarithm of their mean probabilities `[..., V]`, float32 at least."""
    stacked = ops.stack([ops.log_softmax(ops.cast(x, at_least_float32(x.dtype))) for x in logits])
    return ops.logsumexp(stacked, axis=0) - math.log(len(logits))
