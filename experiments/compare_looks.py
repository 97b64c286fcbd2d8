"""What a comparison shows in TensorBoard besides its losses: what the models do with the validation text."""

from keras_seq import callbacks

ROWS = 16  # windows that are looked at
LAYOUT = {  # of the Custom Scalars page: a chart a question, all models in it
    "Losses over tokens seen (nats per token)": {
        "training": "Loss/training",
        "validation, cold": "Loss/validation",
        "validation, warm": "Loss/validation_streaming",
    },
    "Cold validation loss at one position of the window": {
        "the first": "loss_by_position/0",
        "after 7 more": "loss_by_position/7",
        "after 63 more": "loss_by_position/63",
    },
}


def diagnostics(vocabulary, validation_text, length):
    """What every validation looks at, whichever the model: what it does not have is not shown.

    Args:
        vocabulary: of the models.
        validation_text: at least one window of it.
        length: positions in a window.
    """
    ids = vocabulary.encode(validation_text).numpy()
    rows = min(ROWS, len(ids) // length)
    windows = ids[: rows * length].reshape(rows, length)
    pieces = [vocabulary.decode([n]) for n in windows[0].tolist()]
    return [
        callbacks.LossByPosition(ids, length),
        callbacks.AttentionMaps(windows, pieces),
        callbacks.GateSaturation(windows),
    ]
