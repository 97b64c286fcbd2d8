"""The interface of every causal language model: a call on whole sequences, and a step with a state.

    model(ids [B, T]) -> logits [B, T, V]
    model.step(ids [B, 1], state) -> (logits [B, V], state),   state = model.get_initial_state(B)

logits[:, t] predict the id at t + 1 from the ids up to t. Steps through a text and one call give the same logits.
"""

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.configuration import own_arguments
from keras_seq.layers.introspection import gives_probabilities, iter_layers
from keras_seq.layers.recurrent.base import RecurrentBase
from keras_seq.layers.residual import apply_sequentially, check_separates_documents, initial_states
from keras_seq.models.laws import check_blocks, check_steps
from keras_seq.models.quantization import Quantizable
from keras_seq.models.token_ids import TokenTargets, as_ids, embed, validate_token_ids
from keras_seq.ops import tensor_checks
from keras_seq.ops.position_wise import projects_table, rows_of_table
from keras_seq.ops.tensor_checks import at_least_float32

EMBEDDINGS = (keras.layers.Embedding, keras.layers.ReversibleEmbedding)  # a vector for each id, at every position alike


def check_step(ids, state):
    """Check the arguments of a step, integers `[B, 1]` and a state, and return the ids as a tensor or an array."""
    ids = as_ids("ids", ids)
    shape = tuple(ids.shape)
    if shape[1] not in (1, None):
        raise ValueError(f"ids has shape {shape}; expected [B, 1]: a step reads one position.")
    if state is None:
        raise ValueError("state=None; expected the state of get_initial_state(B) or of the step before.")
    return ids


@keras.saving.register_keras_serializable(package="keras_seq")
class LanguageModel(Quantizable, TokenTargets, keras.Model):
    """Predict the next id: ids -> embedding -> blocks, one after the other -> head -> logits.

    The state is a tuple with an entry for each block that keeps one.

    Args:
        embedding: Layer from ids `[B, T]` to `[B, T, D]`.
        blocks: Layers from `[B, T, D]` to `[B, T, D']`. One with `get_initial_state(batch_size)` keeps a state and is
            called as `layer(x, state=..., return_state=True) -> (y, state)`.
        head: Layer from the last block's output to logits `[B, T, V]`; None ties it to the embedding, a
            `keras.layers.ReversibleEmbedding` (Press & Wolf, 2017).
        context_length: Maximum number of positions that the model can attend to; None if its state has no length
            (recurrent models).
        document_token: Id that begins a document; None if there is none. At this id every state begins anew: a
            recurrent state is set to zeros, keys before it are not attended to, positions begin at 0. So a document has
            the logits that it has by itself, wherever it is in a row or a stream.

    Call arguments:
        ids: Integers `[B, T]`.
        state: From `get_initial_state` or the call before; None starts each block from its initial state.
        training: Whether dropout is on.
        return_state: Whether to return `(logits, state)` instead of logits `[B, T, V]`, at least float32.
        mask: Booleans `[B, T]`, true at non-padding positions, or None. Padding, on either side, changes nothing at the
            other positions, and is not a position.

    Raises:
        ValueError: A block is not a layer, is not causal, hides its state, gives no sequence or is listed twice; the
            head has a softmax; a layer that is not of keras_seq gives other outputs in steps than in one pass, which is
            tried once, when the model is built; a call has more positions than `context_length`, ids that are not
            integers `[B, T]`, or a state of another structure or batch size; with `document_token`, a block keeps a
            state that cannot begin anew within a row; an id is not in the embedding's vocabulary, in calls outside of
            compiled code. Inside, the logits of such an id are NaN.
    """

    layer_arguments = ("embedding", "blocks", "head")

    def __init__(
        self,
        embedding,
        blocks: list,
        head,
        context_length: int | None = None,
        document_token: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_blocks(blocks, "language model")
        if len({id(block) for block in blocks}) < len(blocks):
            raise ValueError("blocks has the same layer twice; expected each once: each keeps a state of its own.")
        if head is not None and any(map(gives_probabilities, iter_layers(head))):
            raise ValueError(
                f"{head.name} gives probabilities; expected a head that gives logits: leave out its softmax."
            )
        self.autocast = False  # the layers cast their inputs; the state keeps its own dtypes
        self.supports_masking = True
        self.embedding = embedding
        self.blocks = list(blocks)
        self.head = head
        self.context_length = context_length
        self.document_token = document_token

    @property
    def document_token(self) -> int | None:
        """The id that begins a document, or None; Keras's `fit` and `predict` are compiled again after it is set."""
        return self._document_token

    @document_token.setter
    def document_token(self, value: int | None):
        if value is not None:
            checks.integer("document_token", value, min_value=0, max_value=checks.MAX_INT32)
            check_separates_documents(self.blocks)
        if value != getattr(self, "_document_token", value):
            self.train_function = self.test_function = self.predict_function = None  # compiled with the old one
        self._document_token = value

    def build(self, input_shape):
        """Build every layer, for ids `[B, T]`."""
        specs, x = [], keras.KerasTensor(input_shape, dtype="int32")
        for layer in (self.embedding, *self.blocks, *([] if self.head is None else [self.head])):
            specs.append((layer, x))
            x = layer(x)
            shape = tuple(getattr(x, "shape", ()))
            if len(shape) != 3 or (shape[1] != input_shape[1] and None not in (shape[1], input_shape[1])):
                raise ValueError(f"{layer.name} makes {shape} of ids {tuple(input_shape)}; expected [B, T, D].")
        self.build_quantized()
        for layer, x in specs:
            check_steps(layer, x, self.context_length)

    def build_from_config(self, config):
        """Build every layer, for the ids that the config names; Keras's method would hide an error."""
        self.build(config["input_shape"])

    def get_initial_state(self, batch_size, capacity: int | None = None):
        """Return the state before the first position.

        Args:
            batch_size: Number of sequences B.
            capacity: Number of positions that caches can hold, at most `context_length`, which is the default; without
                either, sliding windows set it. Models without a cache have no use for it.
        """
        if not self.built:
            self.build((None, None))
        limits = [limit for limit in (capacity, self.context_length) if limit is not None]
        return initial_states(self.blocks, batch_size, **({"capacity": min(limits)} if limits else {}))

    input_dtype = "int32"  # of ids, for Keras's `export`

    def __call__(self, ids=None, *args, **kwargs):
        """Apply the model to ids `[B, T]`: a tensor, an array or a list."""
        return super().__call__(as_ids("ids", ids), *args, **kwargs)

    def call(self, ids, state=None, training=None, return_state=False, mask=None):
        """Compute logits `[B, T, V]` for ids `[B, T]`."""
        x, state = self.hidden_states(ids, state, training, return_state, mask)
        logits = self.logits(x if mask is None else ops.copy(x))  # without the mask, which ends here
        return (logits, state) if return_state else logits

    def hidden_states(self, ids, state=None, training: bool | None = None, return_state: bool = False, mask=None):
        """Compute the input of the head, vectors `[B, T, D']`, and the next state; the arguments are those of a call.

        The state is None if `state` is None and `return_state` is False.

        Raises:
            ValueError: There are no positions or more than `context_length`, or, outside of compiled code, an id is
                not in the vocabulary.
        """
        if self.context_length is not None and (ids.shape[1] or 0) > self.context_length:
            limit = f"context_length={self.context_length}"
            raise ValueError(f"ids has {ids.shape[1]} positions; expected at most {limit}.")
        if ids.shape[1] == 0:
            raise ValueError(f"ids has shape {tuple(ids.shape)}; expected at least one position.")
        vocabulary_size = getattr(self.embedding, "input_dim", None)
        if mask is not None:  # whatever stands at padding
            ids = ops.where(tensor_checks.boolean_mask("mask", mask, ranks=(2,), x=ids), ids, 0)
        ids = validate_token_ids("ids", ids, vocabulary_size)
        if state is None and return_state:
            state = self.get_initial_state(ops.shape(ids)[0])
        x = embed(self.embedding, ids, vocabulary_size)
        projected_inputs = self._vocabulary_projection(ids, training)
        reset_mask = None if self.document_token is None else ops.equal(ids, self.document_token)
        if reset_mask is not None and mask is not None:
            reset_mask = ops.logical_and(reset_mask, mask)  # padding of this id begins no document
        # with projected inputs x is unused, and pruned from the graph
        first = {} if projected_inputs is None else {"projected_inputs": projected_inputs}
        return apply_sequentially(self.blocks, x, state, mask, training=training, first=first, reset_mask=reset_mask)

    def _vocabulary_projection(self, ids, training):
        """Project the whole embedding table once and gather its rows by id; return None where that is not faster.

        (E[ids]) W + b = (E W + b)[ids], and a batch has many more positions than its vocabulary has characters.
        """
        first, embedding = (*self.blocks, None)[0], self.embedding
        # a subclass with a call of its own may use x
        is_plain_recurrent = isinstance(first, RecurrentBase) and type(first).call is RecurrentBase.call
        if not is_plain_recurrent or type(embedding) not in EMBEDDINGS or (training and first.dropout):
            return None
        if not projects_table(ids, embedding.input_dim, embedding.output_dim):
            return None
        table = embedding(ops.arange(embedding.input_dim))
        return rows_of_table(ids, first.project_inputs(ops.cast(table, first.compute_dtype)))

    def logits(self, x):
        """Compute logits `[B, T, V]`, at least float32, from the head's input `[B, T, D']`."""
        logits = self.embedding(x, reverse=True) if self.head is None else self.head(x)
        return ops.cast(logits, at_least_float32(self.compute_dtype))

    def step(self, ids, state):
        """Compute the logits of the next id from one position.

        Args:
            ids: Integers `[B, 1]`.
            state: From `get_initial_state` or the step before.

        Returns:
            `(logits [B, V], state)`.

        Raises:
            ValueError: `ids` is not `[B, 1]`, or the state is None or of another structure or batch size.
        """
        ids = check_step(ids, state)
        logits, state = super().__call__(ids, state=state, training=False, return_state=True)  # checked by now
        return logits[:, -1], state

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), **own_arguments(self, LanguageModel)}
