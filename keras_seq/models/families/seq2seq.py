"""The encoder-decoder Transformer (Vaswani et al., 2017, arXiv:1706.03762).

    x = dropout(sqrt(D) embedding[ids] + sinusoids)             one embedding for source, target and output
    context = blocks of self-attention over the source
    y = blocks of causal self-attention over the target and cross-attention to the context
    logits = y embedding^T

Blocks are post-norm, as published. Id 0 is padding. `EncoderDecoder` is the model of T5, too: what differs is given.
"""

import dataclasses
import math
from collections.abc import Mapping

import keras
from keras import ops

from keras_seq import checks, layers
from keras_seq.layers.base.configuration import own_arguments
from keras_seq.layers.base.state import check_state, shapes
from keras_seq.models.config import check_fields, register
from keras_seq.models.counts import count_block_params
from keras_seq.models.language_model import check_step
from keras_seq.models.quantization import Quantizable
from keras_seq.models.token_ids import TokenTargets, as_ids, embed, validate_token_ids
from keras_seq.ops.tensor_checks import at_least_float32

LAYERS = "head", "encoder_normalization", "decoder_normalization"
OPTIONAL = {  # arguments that a config has only where they differ from these: that of a Seq2Seq model has none
    **dict.fromkeys(LAYERS),
    **{"use_sinusoids": True, "logit_scale": 1.0, "decoder_start_token_id": None},
}


@keras.saving.register_keras_serializable(package="keras_seq")
class EncoderDecoder(Quantizable, TokenTargets, keras.Model):
    """Predict the next target id from source ids and the target ids before it.

    ```python
    inputs = {"encoder_token_ids": source, "decoder_token_ids": target}  # [B, S], [B, T]
    logits = model(inputs)  # [B, T, V]
    state = model.get_initial_state(source, capacity=20)  # encodes the source once
    logits, state = model.step(target[:, :1], state)  # one position: [B, V]
    ```

    Masking: id 0 is padding, anywhere in source and target, and changes nothing at the other positions. With a
    `decoder_start_token_id`, which may be 0, every id of the target counts, and padding can only be behind it, where
    causality hides it. The logits at padded target positions are meaningless; mask them in the loss.

    Args:
        embedding: A `keras.layers.ReversibleEmbedding` for source, target and output; with a head an `Embedding`.
        encoder: A list of `TransformerBlock`. Where blocks share the biases of `BucketedPositions`, the first has them.
        decoder: A list of `TransformerBlock` with `causal=True, cross_attention=True`.
        dropout: Dropout rate of the embedded sequences and of what the normalizations return, at least 0 and below 1.
        head: A `Dense` layer to the V logits, or None for the transposed embedding.
        encoder_normalization, decoder_normalization: Layers behind the last block, or None.
        use_sinusoids: Whether the embeddings are multiplied by sqrt(D) and sinusoids are added; otherwise positions are
            what the blocks make of them.
        logit_scale: Factor of what the logits are computed from.
        decoder_start_token_id: The id that every target begins with, or None for models that have none of their own.

    Call arguments:
        inputs: `{"encoder_token_ids": [B, S], "decoder_token_ids": [B, T]}`, integers.
        training: Whether dropout is on.

    Raises:
        ValueError: A block of the decoder is not causal or has no cross-attention, an argument is out of its range, the
            inputs are not such a dict, an id is not in the vocabulary, or there are more target positions than the
            state's capacity. Inside compiled code invalid ids and too many positions give NaN.
    """

    layer_arguments = ("embedding", "encoder", "decoder", *LAYERS)

    def __init__(
        self,
        embedding,
        encoder: list,
        decoder: list,
        dropout: float = 0.0,
        head=None,
        encoder_normalization=None,
        decoder_normalization=None,
        use_sinusoids: bool = True,
        logit_scale: float = 1.0,
        decoder_start_token_id: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        for block in decoder:
            if not (block.causal and block.cross_attention):
                received = f"causal={block.causal}, cross_attention={block.cross_attention}"
                raise ValueError(f"{block.name} in the decoder has {received}; expected both to be True.")
        for blocks in (encoder, decoder):
            shared = [getattr(block.positions, "shared", None) for block in blocks]
            if True in shared and shared[0] is not False:
                received = f"{blocks[0].name}, a first block, has positions={blocks[0].positions}"
                raise ValueError(f"{received}; expected BucketedPositions(...), whose biases the others share.")
        self.autocast = False  # the layers cast their inputs; the state keeps its own dtypes
        self.embedding = embedding
        self.embedding.supports_masking = True  # it is also called on the decoder's output, which carries a mask
        self.encoder = list(encoder)
        self.decoder = list(decoder)
        self.dropout = checks.fraction("dropout", dropout)
        self.head = head
        self.encoder_normalization, self.decoder_normalization = encoder_normalization, decoder_normalization
        self.use_sinusoids = checks.boolean("use_sinusoids", use_sinusoids)
        self.logit_scale = checks.positive_number("logit_scale", logit_scale)
        self.decoder_start_token_id = decoder_start_token_id
        if decoder_start_token_id is not None:
            checks.integer("decoder_start_token_id", decoder_start_token_id, 0, embedding.input_dim - 1)
        if use_sinusoids:
            self.positions = layers.PositionalEncoding(dtype=self.dtype_policy, name="positions")
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape=None):
        """Build every layer, for ids `[B, S]` and `[B, T]`."""
        x = self.embedding(keras.KerasTensor((None, None), dtype="int32"))
        others = self.head, self.encoder_normalization, self.decoder_normalization
        for layer in (*([self.positions] if self.use_sinusoids else []), *others):
            if layer is not None and not layer.built:
                layer.build(x.shape)
        for block in (*self.encoder, *self.decoder):
            if not block.built:  # blocks from a config are built
                block.build(x.shape, *([x.shape] if block.cross_attention else []))
        self.build_quantized()

    def build_from_config(self, config):
        """Build the weights, which do not depend on the shapes of ids."""
        self.build()

    def embed(
        self, ids, start=0, training: bool | None = None, name: str = "decoder_token_ids", has_padding: bool = True
    ):
        """Embed ids `[B, T]` and add their positional encoding; `start`, an integer or integers `[B]`, is the first's.

        It returns vectors `[B, T, D]` and the mask, bool `[B, T]`, true at non-padding, or None where 0 is no padding.

        Raises:
            ValueError: The ids are not integers `[B, T]` below V.
        """
        ids = validate_token_ids(name, as_ids(name, ids), self.embedding.input_dim)
        mask = ops.not_equal(ids, 0) if has_padding else None
        x = embed(self.embedding, ids, self.embedding.input_dim)
        if self.use_sinusoids:
            x = x * ops.cast(math.sqrt(x.shape[-1]), x.dtype)
            x = self.positions(x, start=start, mask=mask)
        return self.dropout_layer(x, training=training), mask

    def encode(self, encoder_token_ids, training: bool | None = None):
        """Encode the source, ids `[B, S]`, 0 for padding: the context `[B, S, D]` and its mask, bool `[B, S]`.

        Raises:
            ValueError: The ids are not integers `[B, S]` below V.
        """
        x, mask = self.embed(encoder_token_ids, training=training, name="encoder_token_ids")
        for block in self.encoder:
            x = block(x, mask=mask, training=training, **self._biases(block, self.encoder))
        return self._normalized(x, self.encoder_normalization, training), mask

    def __call__(self, inputs=None, *args, **kwargs):
        """Apply the model to `{"encoder_token_ids": [B, S], "decoder_token_ids": [B, T]}`."""
        return super().__call__(self._checked(inputs), *args, **kwargs)

    def call(self, inputs, training=None):
        """Compute logits for the decoder's tokens."""
        context, context_mask = self.encode(inputs["encoder_token_ids"], training=training)
        x, mask = self._embed_target(inputs["decoder_token_ids"], training=training)
        for block in self.decoder:
            biases = self._biases(block, self.decoder)
            x = block(x, mask=mask, context=context, context_mask=context_mask, training=training, **biases)
        return self._logits(x, training)

    def cross_attention(self, inputs):
        """Compute the attention of target to source positions: weights `[B, H, T, S]` for each block of the decoder.

        Inputs are those of a call.
        """
        inputs = self._checked(inputs)
        context, context_mask = self.encode(inputs["encoder_token_ids"], training=False)
        x, mask = self._embed_target(inputs["decoder_token_ids"], training=False)
        options, weights = {"training": False, "return_attention_scores": True}, []
        for block in self.decoder:
            biases = self._biases(block, self.decoder)
            x, scores = block(x, mask=mask, context=context, context_mask=context_mask, **options, **biases)
            weights.append(scores["cross_attention"])
        return tuple(weights)

    def get_initial_state(self, encoder_token_ids, capacity: int):
        """Encode the source and return the state before the first target position.

        Args:
            encoder_token_ids: Integers `[B, S]`, 0 for padding.
            capacity: Maximum number of target positions.

        Returns:
            `{"position": [B], "blocks": ...}`, with the projected source and an empty cache for each decoder block.

        Raises:
            ValueError: The ids are not integers `[B, S]` below V, or `capacity` is not a positive integer.
        """
        context, context_mask = self.encode(encoder_token_ids, training=False)
        batch_size = ops.shape(context)[0]
        return {
            "position": ops.zeros((batch_size,), "int32"),
            "blocks": tuple(
                block.get_initial_state(batch_size, capacity=capacity, context=context, context_mask=context_mask)
                for block in self.decoder
            ),
        }

    def step(self, ids, state):
        """Compute the logits of the next target id from one position.

        Args:
            ids: Target ids, integers `[B, 1]`.
            state: From `get_initial_state` or the step before.

        Returns:
            `(logits [B, V], state)`.

        Raises:
            ValueError: `ids` is not `[B, 1]` integers below V, the state is None or of another structure or batch size,
                or its capacity is exceeded.
        """
        ids = check_step(ids, state)
        check_state(self.name, state, self._state_shapes(ids, state))
        x, mask = self._embed_target(ids, start=state["position"], training=False, name="ids")
        options, next_block_states = {"mask": mask, "training": False, "return_state": True}, []
        for block, block_state in zip(self.decoder, state["blocks"], strict=True):
            x, block_state = block(x, state=block_state, **options, **self._biases(block, self.decoder))
            next_block_states.append(block_state)
        position = state["position"] + (1 if mask is None else ops.sum(ops.cast(mask, "int32"), axis=1))
        return self._logits(x)[:, -1], {"position": position, "blocks": tuple(next_block_states)}

    @staticmethod
    def _checked(inputs):
        """Check the inputs of a call, and return them as tensors or arrays."""
        if not isinstance(inputs, Mapping) or inputs.keys() != {"encoder_token_ids", "decoder_token_ids"}:
            received = f"the keys {list(inputs)}" if isinstance(inputs, Mapping) else type(inputs).__name__
            raise ValueError(
                f"inputs: {received}; expected a dict of encoder_token_ids [B, S] and decoder_token_ids [B, T]."
            )
        inputs = {name: as_ids(name, ids) for name, ids in inputs.items()}
        rows = {name: ids.shape[0] for name, ids in inputs.items()}
        if len({*rows.values()} - {None}) > 1:
            raise ValueError(f"Numbers of rows: {rows}; expected a target for each source.")
        return inputs

    def _state_shapes(self, ids, state):
        """Return the expected shapes of a state; each block checks its own part."""
        blocks = shapes(state).get("blocks") if isinstance(state, Mapping) else None
        block_shapes = blocks if isinstance(blocks, tuple) and len(blocks) == len(self.decoder) else ()
        return {"position": list(ids.shape[:1]), "blocks": block_shapes}

    def _embed_target(self, ids, **options):
        return self.embed(ids, has_padding=self.decoder_start_token_id is None, **options)

    def _biases(self, block, blocks):
        """Return the biases that a block shares with the first, as an argument of its call."""
        if not getattr(block.positions, "shared", False):
            return {}
        return {"bucket_bias": ops.convert_to_tensor(blocks[0].self_attention_layer.bucket_bias)}

    def _normalized(self, x, normalization, training):
        return x if normalization is None else self.dropout_layer(normalization(x), training=training)

    def _logits(self, x, training=False):
        x = self._normalized(x, self.decoder_normalization, training)
        x = x if self.logit_scale == 1 else x * ops.cast(self.logit_scale, x.dtype)
        logits = self.embedding(x, reverse=True) if self.head is None else self.head(x)
        return ops.cast(logits, at_least_float32(self.compute_dtype))

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        arguments = own_arguments(self, EncoderDecoder)
        defaults = [name for name, default in OPTIONAL.items() if arguments[name] == default]
        return {**super().get_config(), **{name: v for name, v in arguments.items() if name not in defaults}}


@register("seq2seq", tiny={"num_encoder_layers": 1, "num_decoder_layers": 1})
@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
    """Configure an encoder-decoder Transformer as published in 2017.

    ```python
    model = Seq2SeqConfig().build_model(vocabulary_size=5000)
    logits = model({"encoder_token_ids": source, "decoder_token_ids": target})  # [B, S], [B, T] -> [B, T, 5000]
    ```

    Raises:
        ValueError: A field is out of its range.
    """

    embedding_dim: int = 128
    """D, the width of the model."""
    num_encoder_layers: int = 2
    """Number of encoder blocks."""
    num_decoder_layers: int = 2
    """Number of decoder blocks."""
    num_heads: int = 4
    """Attention heads in each block, a divisor of embedding_dim."""
    feed_forward_dim: int = 512
    """Width of the hidden layer of each block's feed-forward network."""
    dropout: float = 0.1
    """Dropout rate of the embeddings, the attention weights and the output of each sublayer."""

    def __post_init__(self):
        """Check the fields."""
        check_fields(self, Seq2SeqConfig)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim, hidden = self.embedding_dim, self.feed_forward_dim
        encoder = self.num_encoder_layers * count_block_params(dim, hidden)
        decoder = self.num_decoder_layers * count_block_params(dim, hidden, num_attentions=2)
        return vocabulary_size * dim + encoder + decoder

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> EncoderDecoder:
        """Build the Keras model from source and target ids to logits `[B, T, V]`.

        Arguments are those of `LanguageModelConfig.build_model`.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer, or `embedding_dim` is not a multiple of
                `num_heads`.
        """
        checks.positive_integer("vocabulary_size", vocabulary_size)

        def blocks(name, count, **options):
            return [
                layers.TransformerBlock(
                    num_heads=self.num_heads,
                    feed_forward_dim=self.feed_forward_dim,
                    norm_first=False,
                    activation="relu",
                    dropout=self.dropout,
                    dtype=dtype,
                    name=f"{name}_{n}",
                    **options,
                )
                for n in range(count)
            ]

        # D^-1/2, so that the inputs, scaled by sqrt(D), and the logits both have unit variance at the start
        normal = keras.initializers.RandomNormal(stddev=self.embedding_dim**-0.5)
        model = EncoderDecoder(
            keras.layers.ReversibleEmbedding(
                vocabulary_size, self.embedding_dim, embeddings_initializer=normal, dtype=dtype, name="embedding"
            ),
            blocks("encoder", self.num_encoder_layers),
            blocks("decoder", self.num_decoder_layers, causal=True, cross_attention=True),
            dropout=self.dropout,
            dtype=dtype,
            name="seq2seq",
        )
        model.build()
        return model
