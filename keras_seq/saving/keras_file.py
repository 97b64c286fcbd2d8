"""Write a model as a `.keras` file that loads without training code."""

from keras_seq.atomic_files import atomic_write


def save_model(path, model):
    """Writes a model without optimizer and loss, so that whoever loads it needs no training code."""
    copy = type(model).from_config(model.get_config())
    if not copy.built:
        copy.build((None, None))
    copy.set_weights(model.get_weights())
    with atomic_write(path) as temporary:
        copy.save(temporary)
