"""Write a model as a `.keras` file that loads without training code."""

import os

from keras_seq.atomic_files import atomic_write


def save_model(path: str | os.PathLike, model) -> None:
    """Write a model without optimizer and loss, so that loading it needs no training code.

    Args:
        path: The `.keras` file to write, atomically.
        model: A built Keras model.

    Raises:
        OSError: The file cannot be written.
    """
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy.build((None, None))
    copy.set_weights(model.get_weights())
    with atomic_write(path) as temporary:
        copy.save(temporary)
