"""Diagnostics that `experiments.compare` computes at every validation and writes to TensorBoard besides the losses."""

from keras_seq import callbacks
from keras_seq.tokenizers import CharacterTokenizer

NUM_WINDOWS = 16  # windows for attention maps and gate saturation
LAYOUT = {  # charts of TensorBoard's Custom Scalars page, each with all models
    "Losses over tokens (nats per token)": {
        "train loss": "Loss/training",
        "val_loss": "Loss/validation",
        "val_loss_streaming": "Loss/validation_streaming",
    },
    "Validation loss at one position of the window": {
        "position 0": "loss_by_position/0",
        "position 7": "loss_by_position/7",
        "position 63": "loss_by_position/63",
    },
}


def diagnostics(tokenizer: CharacterTokenizer, validation_text: str, sequence_length: int) -> list:
    """Return the diagnostics of every validation: loss by position, attention maps and gate saturation.

    Those that do not apply to a model (attention maps of an LSTM) write nothing.

    Args:
        tokenizer: Tokenizer of the models.
        validation_text: At least one window of text.
        sequence_length: T of the windows.
    """
    ids = tokenizer.encode(validation_text).numpy()
    rows = min(NUM_WINDOWS, len(ids) // sequence_length)
    windows = ids[: rows * sequence_length].reshape(rows, sequence_length)
    tokens = [tokenizer.decode([n]) for n in windows[0].tolist()]
    return [
        callbacks.LossByPosition(ids, sequence_length),
        callbacks.AttentionMaps(windows, tokens),
        callbacks.GateSaturation(windows),
    ]
