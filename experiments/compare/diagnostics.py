"""Diagnostics that `experiments.compare` computes at every validation and writes to TensorBoard besides the losses."""

from keras_seq import callbacks
from keras_seq.tokenizers import CharacterTokenizer

NUM_WINDOWS = 16  # windows for attention maps and gate saturation


def diagnostics(tokenizer: CharacterTokenizer, validation_text: str, sequence_length: int) -> list:
    """Return loss by position, attention maps and gate saturation; what a model lacks, it shows nothing of.

    With the text of the validations, the loss by position is that of the windows that they have scored.
    """
    ids = tokenizer.encode(validation_text)
    rows = min(NUM_WINDOWS, len(ids) // sequence_length)
    windows = ids[: rows * sequence_length].reshape(rows, sequence_length)
    names = {n: tokenizer.decode([n]) for n in set(windows[0].tolist())}
    tokens = [names[n] for n in windows[0].tolist()]
    return [
        callbacks.LossByPosition(ids, sequence_length, max_windows=None),
        callbacks.AttentionMaps(windows, tokens),
        callbacks.GateSaturation(windows),
    ]
