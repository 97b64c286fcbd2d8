"""Diagnostics that `experiments.compare` computes at every validation and writes to TensorBoard besides the losses."""

import numpy as np

from keras_seq import callbacks, training
from keras_seq.evaluation.validation_sample import sample_windows
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.document_token import encode_documents

NUM_WINDOWS = 16  # windows for attention maps and gate saturation


def diagnostics(
    tokenizer: CharacterTokenizer, validation_text: str, sequence_length: int, train: training.TrainConfig
) -> list:
    """Return loss by position, attention maps and gate saturation; what a model lacks, it shows nothing of.

    The loss by position is that of the windows that a validation scores, all of them spread over the text.
    """
    ids = encode_documents(tokenizer, validation_text)
    total = (len(ids) - 1) // sequence_length
    scored = training.validation_sample(ids, sequence_length, train, len(validation_text))
    sample = sample_windows(ids, sequence_length, NUM_WINDOWS)
    starts = np.arange(total) * sequence_length if sample is None else sample.window_starts
    windows = ids[starts[:, None] + np.arange(sequence_length)]
    names = {n: tokenizer.decode([n]) for n in set(windows[0].tolist())}
    tokens = [names[n] for n in windows[0].tolist()]
    return [
        callbacks.LossByPosition(ids, sequence_length, None if scored is None else scored.tokens // sequence_length),
        callbacks.AttentionMaps(windows, tokens),
        callbacks.GateSaturation(windows),
    ]
