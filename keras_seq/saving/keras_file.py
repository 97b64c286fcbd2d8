"""Write a model as a `.keras` file that loads without training code."""

import os

from keras_seq.atomic_files import atomic_write
from keras_seq.models.lora import is_adapter, merged_values


def save_model(path: str | os.PathLike, model) -> None:
    """Write a model without optimizer and loss, so that loading it needs no training code; adapters are merged.

    Args:
        path: The `.keras` file to write, atomically.
        model: A built Keras model.

    Raises:
        OSError: The file cannot be written.
    """
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy.build((None, None))
    merged = merged_values(model)
    copy.set_weights([merged.get(id(weight), weight) for weight in model.weights if not is_adapter(weight)])
    with atomic_write(path) as temporary:
        copy.save(temporary)
