"""T5, the text-to-text Transformer (Raffel et al., 2020, arXiv:1910.10683): an encoder-decoder of relative positions.

    x = dropout(E[ids])                                                one embedding for source and target
    block    x + f(norm(x)) for each sublayer f, then a norm           RMS norms, no biases but those of distances
    scores = q k^T + b[bucket of the distance, head]                   not divided by sqrt(K); b is one for all blocks
    logits = y E^T / sqrt(D), or y W                                   version 1.0; 1.1 and Flan-T5

Version 1.1 (Shazeer, 2020, arXiv:2002.05202) has gated feed-forward networks and a head of its own.
"""

import dataclasses
from typing import Literal

import keras

from keras_seq import checks, layers
from keras_seq.layers.attention.transformer_block import GATED_ACTIVATIONS
from keras_seq.models.config import check_fields, register
from keras_seq.models.families.seq2seq import EncoderDecoder
from keras_seq.models.families.transformer import ACTIVATIONS

T5_ACTIVATIONS = {**ACTIVATIONS, "geglu_tanh": "geglu_tanh", "swiglu": "swiglu"}


@register("t5", tiny={"num_encoder_layers": 1, "num_decoder_layers": 1})
@dataclasses.dataclass(frozen=True)
class T5Config:
    """Configure a T5; there is no limit of positions.

    ```python
    model = T5Config().build_model(vocabulary_size=5000)
    inputs = {"encoder_token_ids": source, "decoder_token_ids": target}  # [B, S], and [B, T] from the start id on
    logits = model(inputs)  # [B, T, 5000]
    state = model.get_initial_state(source, capacity=20)
    ids, _ = greedy(model.step, state, [model.decoder_start_token_id] * B, max_new_tokens=20, end_token_id=1)
    ```

    Masking: id 0 is padding in the source. A target begins with `decoder_start_token_id`, which is 0, too; there every
    id counts, and padding can only be behind.

    Raises:
        ValueError: A field is out of its range; in `build_model`, `decoder_start_token_id` is not in the vocabulary.
    """

    embedding_dim: int = 128
    """D, the width of the residual stream."""
    num_encoder_layers: int = 2
    """Number of encoder blocks."""
    num_decoder_layers: int = 2
    """Number of decoder blocks."""
    num_heads: int = 4
    """Attention heads in each block."""
    key_dim: int = 32
    """K, the width of a head."""
    feed_forward_dim: int = 512
    """Width of the hidden layer of each block's feed-forward network."""
    num_buckets: int = 32
    """Number of buckets of distances, at least 4."""
    max_distance: int = 128
    """Distance from which on all are in the last bucket, above num_buckets / 2."""
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "geglu_tanh", "swiglu"] = "relu"
    """Activation of the feed-forward networks; geglu_tanh, that of version 1.1, and swiglu are gated."""
    dropout: float = 0.1
    """Dropout rate of the embeddings, the attention weights, and the output of each sublayer and stack."""
    epsilon: float = 1e-6
    """Added to the mean square by the normalizations."""
    tie_embeddings: bool = True
    """Whether the head is the transposed embedding matrix."""
    scale_logits: bool = True
    """Whether the logits are divided by sqrt(embedding_dim), as those of a tied head are."""
    decoder_start_token_id: int = 0
    """Id that every target begins with."""

    def __post_init__(self):
        """Check the fields."""
        self._positions()  # raises for an invalid size
        check_fields(self, T5Config)

    def _positions(self, shared=False):
        return layers.BucketedPositions(self.num_buckets, self.max_distance, scale=1.0, shared=shared)

    def count_params(self, vocabulary_size: int) -> int:
        """Return the number of parameters, without building the model."""
        dim, num_layers = self.embedding_dim, self.num_encoder_layers + self.num_decoder_layers
        attention = 4 * dim * self.num_heads * self.key_dim + dim  # and a norm
        feed_forward = (3 if self.activation in GATED_ACTIVATIONS else 2) * dim * self.feed_forward_dim + dim
        blocks = num_layers * (attention + feed_forward) + self.num_decoder_layers * attention
        embeddings = vocabulary_size * dim * (1 if self.tie_embeddings else 2)
        return embeddings + blocks + 2 * (self.num_buckets * self.num_heads + dim)

    def build_model(self, vocabulary_size: int, dtype: str | keras.DTypePolicy | None = None) -> EncoderDecoder:
        """Build the Keras model from source and target ids to logits `[B, T, V]`.

        Arguments are those of `LanguageModelConfig.build_model`.

        Raises:
            ValueError: `vocabulary_size` is not a positive integer, or `decoder_start_token_id` is not below it.
        """
        checks.positive_integer("vocabulary_size", vocabulary_size)
        dim = self.embedding_dim

        def blocks(name, count, **options):
            return [
                layers.TransformerBlock(
                    num_heads=self.num_heads,
                    feed_forward_dim=self.feed_forward_dim,
                    normalization="rms",
                    activation=T5_ACTIVATIONS[self.activation],
                    dropout=self.dropout,
                    use_bias=False,
                    key_dim=self.key_dim,
                    epsilon=self.epsilon,
                    positions=self._positions(shared=n > 0),
                    dtype=dtype,
                    name=f"{name}_{n}",
                    **options,
                )
                for n in range(count)
            ]

        def normalization(name):
            return layers.RMSNormalization(epsilon=self.epsilon, dtype=dtype, name=f"{name}_normalization")

        kind, head = keras.layers.ReversibleEmbedding, None
        if not self.tie_embeddings:
            kind, normal = keras.layers.Embedding, keras.initializers.RandomNormal(stddev=dim**-0.5)
            head = layers.Dense(vocabulary_size, use_bias=False, kernel_initializer=normal, dtype=dtype, name="head")
        normal = keras.initializers.RandomNormal(stddev=1.0)  # so that scaled logits have unit variance at the start
        model = EncoderDecoder(
            kind(vocabulary_size, dim, embeddings_initializer=normal, dtype=dtype, name="embedding"),
            blocks("encoder", self.num_encoder_layers),
            blocks("decoder", self.num_decoder_layers, causal=True, cross_attention=True),
            dropout=self.dropout,
            head=head,
            encoder_normalization=normalization("encoder"),
            decoder_normalization=normalization("decoder"),
            use_sinusoids=False,
            logit_scale=dim**-0.5 if self.scale_logits else 1.0,
            decoder_start_token_id=self.decoder_start_token_id,
            dtype=dtype,
            name="t5",
        )
        model.build()
        return model
