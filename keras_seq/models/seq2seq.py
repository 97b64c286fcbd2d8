"""The encoder-decoder Transformer (Vaswani et al., 2017), whole.

    x = dropout(sqrt(D) embedding[ids] + sinusoids)             one embedding for source, target and output
    encoded = blocks of self-attention over the source
    y = blocks of causal self-attention over the target and cross-attention to `encoded`
    logits = y embedding^T

The normalisation stands behind each part, as published. Id 0 is padding.
"""

import dataclasses
import math
from collections.abc import Mapping

import keras
from keras import ops

from keras_seq import checks, layers
from keras_seq.layers.precision import at_least_float32
from keras_seq.layers.state_checks import check_state, shapes
from keras_seq.models.id_checks import as_ids, embed, validate_token_ids
from keras_seq.models.language_model import check_step
from keras_seq.models.parameter_counts import count_block_params


@keras.saving.register_keras_serializable(package="keras_seq")
class EncoderDecoder(keras.Model):
    """Source ids and the target so far -> logits over the next target id.

    ```python
    logits = model({"source": source, "target": target})  # [B, S], [B, T] -> [B, T, V]
    state = model.initial_state(source, capacity=20)  # reads the source once
    logits, state = model.step(target[:, :1], state)  # one position: [B, V]
    ```

    Args:
        embedding: a `keras.layers.ReversibleEmbedding` for source, target and output.
        encoder: a list of `TransformerBlock`.
        decoder: a list of `TransformerBlock` with `causal=True, cross_attention=True`.
        dropout: fraction of the embedded sequences dropped in training.

    Masking: id 0 is padding, in source and target, wherever it lies: it changes nothing at the real positions. The
    logits at a padded target position mean nothing; the loss is to leave them out.

    Raises:
        ValueError: a block of the decoder that sees later positions or no source; an id outside of the vocabulary, or
            more target positions than the state has room for. Inside compiled code, where neither is known, too many
            positions give NaN.
    """

    def __init__(self, embedding, encoder, decoder, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        for block in decoder:
            if not (block.causal and block.cross_attention):
                given = f"causal={block.causal}, cross_attention={block.cross_attention}"
                raise ValueError(f"{block.name} in the decoder has {given}; expected both to be True.")
        self.autocast = False  # the layers cast what they take; the state keeps its own dtypes
        self.embedding = embedding
        self.embedding.supports_masking = True  # it is also called with what the blocks give, which carries a mask
        self.encoder = list(encoder)
        self.decoder = list(decoder)
        self.dropout = checks.fraction("dropout", dropout)
        self.positions = layers.PositionalEncoding(dtype=self.dtype_policy, name="positions")
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape=None):
        """Makes every weight, for ids `[B, S]` and `[B, T]`."""
        x = self.embedding(keras.KerasTensor((None, None), dtype="int32"))
        self.positions.build(x.shape)
        for block in (*self.encoder, *self.decoder):
            if not block.built:  # what comes back from a config is
                block.build(x.shape, *([x.shape] if block.cross_attention else []))

    def build_from_config(self, config):
        """Any shape of ids makes the same weights."""
        self.build()

    def embed(self, ids, start=0, training=None, name="target"):
        """Ids `[B, T]` that stand at `start` -> (vectors `[B, T, D]`, mask `[B, T]`); `name` is for errors."""
        ids = validate_token_ids(name, as_ids(name, ids), self.embedding.input_dim)
        mask = ops.not_equal(ids, 0)
        x = embed(self.embedding, ids, self.embedding.input_dim)
        x = x * ops.cast(math.sqrt(x.shape[-1]), x.dtype)
        x = self.positions(x, start=start, mask=mask)
        return self.dropout_layer(x, training=training), mask

    def encode(self, source, training=None):
        """Source ids `[B, S]` -> (encoded `[B, S, D]`, mask `[B, S]`)."""
        x, mask = self.embed(source, training=training, name="source")
        for block in self.encoder:
            x = block(x, mask=mask, training=training)
        return x, mask

    def __call__(self, inputs=None, *args, **kwargs):
        """The model over `{"source": ids [B, S], "target": ids [B, T]}`."""
        if not isinstance(inputs, Mapping) or inputs.keys() != {"source", "target"}:
            given = list(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
            raise ValueError(f"inputs: {given}; expected a dict of source and target, ids [B, S] and [B, T].")
        return super().__call__({name: as_ids(name, ids) for name, ids in inputs.items()}, *args, **kwargs)

    def call(self, inputs, training=None):
        """See the class."""
        encoded, real = self.encode(inputs["source"], training=training)
        x, mask = self.embed(inputs["target"], training=training)
        for block in self.decoder:
            x = block(x, mask=mask, context=encoded, context_mask=real, training=training)
        return self._logits(x)

    def cross_attention(self, inputs):
        """Where each target position looks in the source: a tuple with `[B, H, T, S]` for each block of the decoder."""
        encoded, real = self.encode(inputs["source"], training=False)
        x, mask = self.embed(inputs["target"], training=False)
        weights = []
        for block in self.decoder:
            x, scores = block(
                x, mask=mask, context=encoded, context_mask=real, training=False, return_attention_scores=True
            )
            weights.append(scores["cross_attention"])
        return tuple(weights)

    def get_initial_state(self, source, capacity):
        """The source `[B, S]`, read and projected, and room for `capacity` target positions."""
        encoded, real = self.encode(source, training=False)
        batch_size = ops.shape(source)[0]
        return {
            "position": ops.zeros((batch_size,), "int32"),
            "blocks": tuple(
                block.get_initial_state(batch_size, capacity=capacity, context=encoded, context_mask=real)
                for block in self.decoder
            ),
        }

    def step(self, ids, state):
        """One position: target ids `[B, 1]` and the state -> (logits `[B, V]`, state)."""
        check_step(ids, state)
        check_state(self.name, state, self._state_shapes(ids, state))
        x, mask = self.embed(ids, start=state["position"], training=False)
        after = []
        for block, before in zip(self.decoder, state["blocks"], strict=True):
            x, part = block(x, state=before, mask=mask, training=False, return_state=True)
            after.append(part)
        position = state["position"] + ops.sum(ops.cast(mask, "int32"), axis=1)
        return self._logits(x)[:, -1], {"position": position, "blocks": tuple(after)}

    def _state_shapes(self, ids, state):
        """Of the position; each block looks at its own part."""
        blocks = shapes(state).get("blocks") if isinstance(state, Mapping) else None
        of_each = blocks if isinstance(blocks, tuple) and len(blocks) == len(self.decoder) else ()
        return {"position": list(ids.shape[:1]), "blocks": of_each}

    def _logits(self, x):
        return ops.cast(self.embedding(x, reverse=True), at_least_float32(self.compute_dtype))

    def get_config(self):
        """The layers and the dropout."""
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "embedding": serialize(self.embedding),
            "encoder": [serialize(block) for block in self.encoder],
            "decoder": [serialize(block) for block in self.decoder],
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config):
        """Revives the layers too."""
        revive = keras.saving.deserialize_keras_object
        config = dict(config)
        return cls(
            embedding=revive(config.pop("embedding")),
            encoder=[revive(block) for block in config.pop("encoder")],
            decoder=[revive(block) for block in config.pop("decoder")],
            **config,
        )


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
    """An encoder-decoder Transformer as published in 2017."""

    embedding_dim: int = 128
    """D, the width of the model."""
    num_encoder_layers: int = 2
    """Blocks that read the source."""
    num_decoder_layers: int = 2
    """Blocks that write the target."""
    num_heads: int = 4
    """Attention heads in each block."""
    feed_forward_dim: int = 512
    """Width of the hidden layer of each block's feed-forward part."""
    dropout: float = 0.1
    """Fraction of the embeddings, of the attention weights, and of what each part adds, dropped in training."""

    def __post_init__(self):
        names = ("embedding_dim", "num_encoder_layers", "num_decoder_layers", "num_heads", "feed_forward_dim")
        for name in names:
            checks.positive_integer(name, getattr(self, name))
        checks.fraction("dropout", self.dropout)

    def count_params(self, vocabulary_size: int) -> int:
        """The number of parameters, by a formula: nothing is allocated."""
        width, hidden = self.embedding_dim, self.feed_forward_dim
        encoder = self.num_encoder_layers * count_block_params(width, hidden)
        decoder = self.num_decoder_layers * count_block_params(width, hidden, attentions=2)
        return vocabulary_size * width + encoder + decoder

    def build_model(self, vocabulary_size: int, dtype=None) -> EncoderDecoder:
        """The Keras model over `vocabulary_size` ids, in the precision `dtype` (a dtype policy or its name)."""
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

        # D^-1/2, so that what is scaled by sqrt(D) and what gives the logits both start at unit size
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
