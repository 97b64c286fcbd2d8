"""The two calls that every causal model answers.

    model(ids [B, T]) -> logits [B, T, V]
    model.step(ids [B, 1], state) -> (logits [B, V], state),   state = model.initial_state(B)

logits[:, t] is the prediction of the id at t + 1 from the ids up to t. Stepping through a text gives what
the whole pass gives.
"""

import keras
from keras import ops

from keras_seq import kernels
from keras_seq.layers.introspection import (
    gives_no_sequence,
    gives_probabilities,
    has_implicit_state,
    is_non_causal,
    iter_layers,
)
from keras_seq.layers.precision import at_least_float32
from keras_seq.layers.recurrent_base import RecurrentBase
from keras_seq.layers.residual import apply_sequentially, initial_states
from keras_seq.models.id_checks import as_ids, embed, validate_token_ids

EMBEDDINGS = (keras.layers.Embedding, keras.layers.ReversibleEmbedding)  # a vector for each id, whatever its place
NON_CAUSAL_MESSAGE = (
    "it reads what stands behind a position too, so it sees the id that it is to predict, and its loss would mean "
    "nothing. Use it for tagging, or a layer that reads forwards only."
)


def check_step(ids, state):
    """Refuses what is not one position with a state."""
    shape = tuple(as_ids("ids", ids).shape)
    if shape[1] not in (1, None):
        raise ValueError(f"ids has shape {shape}; expected [B, 1]: a step reads one position.")
    if state is None:
        raise ValueError("state=None; expected what initial_state(B) or the step before gives.")


@keras.saving.register_keras_serializable(package="keras_seq")
class LanguageModel(keras.Model):
    """ids -> embedding -> layers, one after the other -> head -> logits.

    Args:
        embedding: layer from ids `[B, T]` to `[B, T, D]`.
        blocks: layers from `[B, T, D]` to `[B, T, D']`. One that has `initial_state(batch_size)` keeps a state
            and is called as `layer(x, state=..., return_state=True) -> (y, state)`.
        head: layer from the last width to logits over the vocabulary; None ties it to the embedding, a
            `keras.layers.ReversibleEmbedding`, whose matrix then serves both ways (Press & Wolf, 2017).
        context: the most positions the model can attend to, or None where its state has no length (a recurrent model).

    The state is a tuple with an entry for each block that keeps one.

    Raises:
        ValueError: a block is no layer, sees later positions, hides its state, gives no sequence or stands there twice;
            a head with a softmax; more ids in a row than `context`; ids that are no integers `[B, T]`; a state of
            another model or another number of rows; an id outside of the embedding's vocabulary, in calls outside of
            compiled code. Inside, such an id gives NaN.
    """

    def __init__(self, embedding, blocks, head, context_length=None, **kwargs):
        super().__init__(**kwargs)
        for block in blocks:
            if not isinstance(block, keras.layers.Layer):
                raise ValueError(f"blocks holds {block!r}; expected layers from [B, T, D] to [B, T, D'].")
            if any(map(is_non_causal, iter_layers(block))):
                raise ValueError(f"{block.name} is no block of a language model: {NON_CAUSAL_MESSAGE}")
            if any(map(has_implicit_state, iter_layers(block))):
                raise ValueError(
                    f"{block.name} is no block of a language model: its state cannot be handed from step to step. "
                    "Use a layer of keras_seq.layers, which takes and gives it, and put Carry around the model."
                )
            if any(map(gives_no_sequence, iter_layers(block))):
                raise ValueError(
                    f"{block.name} is no block of a language model: it does not give one output a position. "
                    "Make the recurrent layer with return_sequences=True, and without return_state=True."
                )
        if len({id(block) for block in blocks}) < len(blocks):
            raise ValueError("blocks has the same layer twice; expected each once: each keeps a state of its own.")
        if head is not None and any(map(gives_probabilities, iter_layers(head))):
            raise ValueError(
                f"{head.name} gives probabilities; expected a head that gives logits: leave out its softmax."
            )
        self.autocast = False  # the layers cast what they take; the state keeps its own dtypes
        self.embedding = embedding
        self.blocks = list(blocks)
        self.head = head
        self.context_length = context_length

    def build(self, input_shape):
        """Makes every weight, for ids `[B, T]`."""
        x = keras.KerasTensor(input_shape, dtype="int32")
        for layer in (self.embedding, *self.blocks, *([] if self.head is None else [self.head])):
            x = layer(x)
            shape = tuple(getattr(x, "shape", ()))
            if len(shape) != 3 or (shape[1] != input_shape[1] and None not in (shape[1], input_shape[1])):
                raise ValueError(f"{layer.name} makes {shape} of ids {tuple(input_shape)}; expected [B, T, D].")

    def get_initial_state(self, batch_size):
        """The state before the first position of `batch_size` texts."""
        capacity = {} if self.context_length is None else {"capacity": self.context_length}
        return initial_states(self.blocks, batch_size, **capacity)

    @property
    def input_dtype(self):
        """That of ids: Keras's `export` would hand in floats."""
        return "int32"

    def __call__(self, ids=None, *args, **kwargs):
        """The model over ids `[B, T]`: a tensor, an array or a list."""
        return super().__call__(as_ids("ids", ids), *args, **kwargs)

    def call(self, ids, state=None, training=None, return_state=False):
        x, state = self.hidden_states(ids, state, training, return_state)
        logits = self.logits(x)
        return (logits, state) if return_state else logits

    def hidden_states(self, ids, state=None, training=None, return_state=False):
        """What the logits are made of, `[B, T, D']`, and the state, None if it is neither given nor asked for."""
        if self.context_length is not None and (ids.shape[1] or 0) > self.context_length:
            raise ValueError(f"{ids.shape[1]} ids in a row; expected at most context={self.context_length}.")
        if ids.shape[1] == 0:
            raise ValueError(f"ids has shape {tuple(ids.shape)}; expected at least one position.")
        size = getattr(self.embedding, "input_dim", None)
        ids = validate_token_ids("ids", ids, size)
        if state is None and return_state:
            state = self.get_initial_state(ops.shape(ids)[0])
        x, projected_inputs = embed(self.embedding, ids, size), self._vocabulary_projection(ids, training)
        first = (
            {} if projected_inputs is None else {"projected_inputs": projected_inputs}
        )  # and x is not computed: nobody asks for it
        return apply_sequentially(self.blocks, x, state, training=training, first=first)

    def _vocabulary_projection(self, ids, training):
        """What a recurrent first layer makes of each vector alone, had once for each id there is; None if not for less.

        (E[ids]) W + b = (E W + b)[ids], and a text has many more positions than its vocabulary has characters.
        """
        first, embedding = (*self.blocks, None)[0], self.embedding
        # and has no `call` of somebody's own
        takes_it = isinstance(first, RecurrentBase) and type(first).call is RecurrentBase.call
        if not takes_it or type(embedding) not in EMBEDDINGS or (training and first.dropout):
            return None
        look_up = kernels.dispatch("embedding_projection", None, ids, embedding.input_dim, embedding.output_dim)
        if look_up is None:
            return None
        table = embedding(ops.arange(embedding.input_dim))
        return look_up(ids, first.project_inputs(ops.cast(table, first.compute_dtype)))

    def logits(self, x):
        """`[B, T, D']` -> logits `[B, T, V]`, float32 at least."""
        logits = self.embedding(x, reverse=True) if self.head is None else self.head(x)
        return ops.cast(logits, at_least_float32(self.compute_dtype))

    def step(self, ids, state):
        """One position: ids `[B, 1]` and the state -> (logits `[B, V]`, state)."""
        check_step(ids, state)
        logits, state = self(ids, state=state, training=False, return_state=True)
        return logits[:, -1], state

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "embedding": serialize(self.embedding),
            "blocks": [serialize(block) for block in self.blocks],
            "head": serialize(self.head),
            "context_length": self.context_length,
        }

    @classmethod
    def from_config(cls, config):
        """Revives the layers too."""
        revive = keras.saving.deserialize_keras_object
        config = dict(config)
        return cls(
            embedding=revive(config.pop("embedding")),
            blocks=[revive(block) for block in config.pop("blocks")],
            head=revive(config.pop("head")),
            **config,
        )
