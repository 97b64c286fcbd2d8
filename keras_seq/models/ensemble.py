"""Average the probabilities of several language models.

    p(next) = 1/M sum_m softmax(logits_m),     logits = log p

Its loss is at most the mean of the members' losses, at every position, because -log is convex. The gain is largest for
overfitted members, whose errors differ (Hansen & Salamon, 1990; Zaremba et al., 2014, arXiv:1409.2329, for LSTMs).
"""

import math

import keras
from keras import ops

from keras_seq.layers.base.configuration import deserialized, own_arguments
from keras_seq.layers.residual import check_states
from keras_seq.models.language_model import LanguageModel, check_step
from keras_seq.models.quantization import NoKerasExport
from keras_seq.models.token_ids import TokenTargets, as_ids
from keras_seq.ops.tensor_checks import at_least_float32


@keras.saving.register_keras_serializable(package="keras_seq")
class Ensemble(NoKerasExport, TokenTargets, keras.Model):
    """Average the probabilities of its members, with the two calls of a `LanguageModel`.

        model = Ensemble([LSTMConfig(units=360).build_model(65), LSTMConfig(units=360).build_model(65)])

    Members are trained one by one, each from another seed; the ensemble has no weights of its own.

    The state is a tuple with the state of each member. `context_length` is the smallest of the members', None if no
    member has one.

    Args:
        members: A list of built `LanguageModel`s over one vocabulary, one or more.

    Call arguments:
        ids: Integers `[B, T]`.
        state: From `get_initial_state` or the call before; None starts every member from its initial state.
        training: Whether dropout is on.
        return_state: Whether to return `(logits, state)` instead of logits `[B, T, V]`.
        mask: Booleans `[B, T]`, true at non-padding positions, or None.

    Raises:
        ValueError: There is no member, a member is listed twice or is not a language model, or the members have
            different vocabulary sizes.
    """

    def __init__(self, members: list, **kwargs):
        super().__init__(**kwargs)
        members = list(members)
        if not members or len({id(member) for member in members}) < len(members):
            raise ValueError(f"members has {len(members)} models; expected one or more, each listed once.")
        for member in members:
            if not isinstance(member, (LanguageModel, Ensemble)):
                name = getattr(member, "name", f"{member!r:.80}")
                raise ValueError(f"{name} is not a language model; expected members that predict ids.")
        self.check_sizes([number_of_outputs(member) for member in members])
        self.autocast = False  # the members cast their inputs; the states keep their own dtypes
        self.supports_masking = True
        self.members = members
        context_lengths = [member.context_length for member in members if member.context_length is not None]
        self.context_length = min(context_lengths, default=None)
        self.built = all(member.built for member in members)

    @property
    def document_token(self) -> int | None:
        """The id that begins a document for any member, or None; to set it sets that of each member."""
        return next((member.document_token for member in self.members if member.document_token is not None), None)

    @document_token.setter
    def document_token(self, value: int | None):
        before = [member.document_token for member in self.members]
        try:
            for member in self.members:
                member.document_token = value
        except ValueError:  # of a member that cannot begin anew within a row
            for member, old in zip(self.members, before, strict=True):
                member.document_token = old
            raise
        self.train_function = self.test_function = self.predict_function = None  # compiled with the old one

    def check_sizes(self, sizes: list[int]):
        """Raise unless the members have equal numbers of outputs."""
        if len(set(sizes)) > 1:
            different = " and ".join(map(str, sorted(set(sizes))))
            raise ValueError(f"members have vocabulary sizes {different}; expected the same size.")

    def build(self, input_shape=None):
        """Do nothing: the members are built."""

    def get_initial_state(self, batch_size, capacity: int | None = None):
        """Return the state before the first position of `batch_size` sequences; `capacity` as for `LanguageModel`."""
        return tuple(member.get_initial_state(batch_size, capacity) for member in self.members)

    input_dtype = "int32"  # of ids, for Keras's `export`

    def __call__(self, ids=None, *args, **kwargs):
        """Apply the model to ids `[B, T]`: a tensor, an array or a list."""
        return super().__call__(as_ids("ids", ids), *args, **kwargs)

    def call(self, ids, state=None, training=None, return_state=False, mask=None):
        """Compute the log of the members' mean probabilities."""
        check_states(self.members, state)
        if state is None and return_state:
            state = self.get_initial_state(ops.shape(ids)[0])
        if state is None:
            outputs = [(member(ids, training=training, mask=mask), None) for member in self.members]
        else:
            outputs = [
                member(ids, state=member_state, training=training, return_state=True, mask=mask)
                for member, member_state in zip(self.members, state, strict=True)
            ]
        logits = self.combine([member_logits for member_logits, _ in outputs])
        return (logits, tuple(member_state for _, member_state in outputs)) if return_state else logits

    def combine(self, logits: list):
        """Compute the output from those of the members."""
        return log_mean_probability(logits)

    def step(self, ids, state):
        """Compute the logits `[B, V]` of the next id from one position, ids `[B, 1]`, and the next state."""
        check_step(ids, state)
        logits, state = self(ids, state=state, training=False, return_state=True)
        return logits[:, -1], state

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), **own_arguments(self, Ensemble)}

    @classmethod
    def from_config(cls, config):
        """Create the ensemble and its members from a config."""
        return cls(**deserialized(config, "members"))


def number_of_outputs(model) -> int:
    """Return V of the logits of a language model."""
    length = min(2, model.context_length or 2)  # Keras warns of a softmax over one position
    return model.compute_output_spec(keras.KerasTensor((1, length), "int32")).shape[-1]


def log_mean_probability(logits: list):
    """Compute the log of the mean probabilities, at least float32 `[..., V]`, from a list of logits `[..., V]`."""
    stacked = ops.stack([ops.log_softmax(ops.cast(x, at_least_float32(x.dtype))) for x in logits])
    return ops.logsumexp(stacked, axis=0) - math.log(len(logits))
