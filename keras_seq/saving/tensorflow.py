"""Write the step of a model as a LiteRT file or as a SavedModel.

    LiteRT         step     ids [B, 1], state_0, ... -> logits [B, V], new_state_0, ...    for one B
                   pass_64  ids [B, 64], ... -> logits [B, 64, V], ...                     for each of the lengths
    SavedModel     step, and call: ids of any length [B, T] -> logits [B, T, V], ...             for any B
                   with a CharacterTokenizer also `generate` and `logits`, from text to text: `text_graph.py`

The graphs have the formulas of `keras_seq.ops`, and the weights as constants (LiteRT) or variables.
"""

import contextlib
import errno
import io
import logging
import os
import pathlib
import tempfile
import zipfile

import keras
import tensorflow as tf
from keras import tree

from keras_seq.models.exported_model import METADATA
from keras_seq.ops.dispatch import reference
from keras_seq.saving.text_graph import ExportedTextGenerator
from keras_seq.tokenizers import CharacterTokenizer


def write_litert(
    model, parts, structure, metadata: str, path, parallel: bool, batch_size: int, lengths, quantization: str | None
) -> None:
    """Write the step and the passes as a LiteRT file of its built-in operations.

    A pass is a loop over the step, or where `parallel` is true, computes all positions together.
    """
    module = tf.Module()
    module.weights = [variable.value for variable in model.variables]
    signatures = {"step": _step(model, parts, structure, batch_size)}
    whole = _whole if parallel else _looped
    signatures |= {f"pass_{n}": whole(model, parts, structure, batch_size, n) for n in lengths}
    with tempfile.TemporaryDirectory() as folder, _quiet():
        tf.saved_model.save(module, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[*signatures])
        if quantization is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]  # int8 weights; inputs are rounded at each call
        path.write_bytes(converter.convert())
    with zipfile.ZipFile(path, "a") as archive:  # at the end of the file, as LiteRT's own metadata
        archive.writestr(f"{METADATA}.json", metadata)


def write_saved_model(model, parts, structure, metadata: str, path: pathlib.Path, tokenizer) -> None:
    """Write the step and the call, and functions of text, as a SavedModel folder."""
    has_text = isinstance(tokenizer, CharacterTokenizer)
    module = ExportedTextGenerator(model, tokenizer) if has_text else tf.Module()
    module.weights = [variable.value for variable in model.variables]
    module.step = _step(model, parts, structure)
    module.call = _whole(model, parts, structure)
    signatures = {"step": module.step, "call": module.call}
    signatures |= {"generate": module.generate, "logits": module.logits} if has_text else {}
    try:
        tf.saved_model.save(module, str(path), signatures=signatures)
    except tf.errors.OpError as error:  # raised by TensorFlow for a full disk, for example
        raise OSError(errno.EIO, error.message.splitlines()[0], str(path)) from error
    extra = path / "assets.extra"
    extra.mkdir()
    (extra / f"{METADATA}.json").write_text(metadata, encoding="utf-8")


def _traced(function, parts, batch_size, length):
    ids = tf.TensorSpec((batch_size, length), tf.int32, "ids")
    state = {part.name: tf.TensorSpec(part.shape_of(batch_size), part.dtype, part.name) for part in parts}
    return tf.function(function, autograph=False).get_concrete_function(ids=ids, **state)


def _packed(structure, parts, state):
    return tree.pack_sequence_as(structure, [state[part.name] for part in parts])


def _outputs(parts, logits, state):
    return {"logits": logits, **{f"new_{part.name}": x for part, x in zip(parts, tree.flatten(state), strict=True)}}


def _step(model, parts, structure, batch_size=None):
    def step(ids, **state):
        with reference():
            return _outputs(parts, *model.step(ids, _packed(structure, parts, state)))

    return _traced(step, parts, batch_size, 1)


def _whole(model, parts, structure, batch_size=None, length=None):
    def call(ids, **state):
        state = _packed(structure, parts, state)
        with contextlib.nullcontext() if length is None else reference():
            return _outputs(parts, *model(ids, state=state, training=False, return_state=True))

    return _traced(call, parts, batch_size, length)


def _looped(model, parts, structure, batch_size, length):
    """Return the function of `length` positions: the step of one after the other, whose weights LiteRT stores once."""

    def whole(ids, **state):
        def position(t, logits, *tensors):
            state = tree.pack_sequence_as(structure, list(tensors))
            with reference():
                new, state = model.step(tf.slice(ids, [0, t], [batch_size, 1]), state)
            new_tensors = [tf.ensure_shape(x, old.shape) for x, old in zip(tree.flatten(state), tensors, strict=True)]
            return t + 1, tf.tensor_scatter_nd_update(logits, [[t]], new[None]), *new_tensors

        size = model.compute_output_spec(keras.KerasTensor((batch_size, 1), "int32")).shape[-1]
        start = tf.constant(0), tf.zeros((length, batch_size, size)), *(state[part.name] for part in parts)
        _, logits, *tensors = tf.while_loop(lambda t, *_: t < length, position, start)
        return _outputs(parts, tf.transpose(logits, [1, 0, 2]), tree.pack_sequence_as(structure, tensors))

    return _traced(whole, parts, batch_size, length)


@contextlib.contextmanager
def _quiet():
    """Silence the converter, which writes from C++ too, and TensorFlow's log."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryFile() as file:
        copy = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(copy, 2)
            os.close(copy)
            logger.setLevel(level)
