"""The models of `experiments.sequence_reversal`, one of them without a causal mask."""

import keras

from experiments.sequence_reversal.settings import NON_CAUSAL, SequenceReversalConfig
from keras_seq.layers import TransformerBlock


def build_model(settings: SequenceReversalConfig, name: str) -> keras.Model:
    """Build the model: a Transformer, an LSTM, or `NON_CAUSAL`."""
    dtype = settings.train.dtype_policy
    model = settings.model_config(name).build_model(settings.reversal.vocabulary_size, dtype=dtype)
    return remove_causal_mask(model) if name == NON_CAUSAL else model


def remove_causal_mask(model: keras.Model) -> keras.Model:
    """Rebuild a language model with attention to all positions, as a functional model.

    `LanguageModel` refuses layers that are not causal.
    """
    ids = keras.Input((None,), dtype="int32")
    x = model.embedding(ids)
    for block in model.blocks:
        if isinstance(block, TransformerBlock):
            block = TransformerBlock.from_config({**block.get_config(), "causal": False})
        x = block(x)
    logits = model.embedding(x, reverse=True) if model.head is None else model.head(x)
    return keras.Model(ids, logits, name=NON_CAUSAL)
