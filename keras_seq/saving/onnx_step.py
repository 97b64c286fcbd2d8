"""One step of a recurrent model as an ONNX file, for runtimes without TensorFlow.

    inputs   ids [B, 1] int32, state_0 ... state_n [B, ...]
    outputs  logits [B, V], new_state_0 ... new_state_n       to be handed in at the next step; all start at zero

Other models have what `tf2onnx` does not convert: the cache's slice updates, erf, loops of XLA.
"""

import importlib.util
import pathlib

import tensorflow as tf

from keras_seq.atomic_files import atomic_write
from keras_seq.layers.introspection import has_time_loop

OPSET = 17


def export_onnx(model, path):
    """Writes the file `path`, which is there as a whole or not at all.

    Raises:
        ValueError: a model of other layers than SimpleRNN, GRU and LSTM; `tf2onnx` is not installed; `path` is there.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise ValueError(f"{path} is there already; expected the name of a new file.")
    if not has_time_loop(model):
        raise ValueError(f"{model.name} cannot be an ONNX file; expected a model of SimpleRNN, GRU or LSTM layers.")
    if importlib.util.find_spec("tf2onnx") is None:
        raise ValueError('ONNX files need tf2onnx, which is not installed: pip install -e ".[onnx]" in its clone.')
    import tf2onnx

    initial = model.get_initial_state(1)
    parts = [(f"state_{n}", part) for n, part in enumerate(tf.nest.flatten(initial))]

    def step(ids, *state):
        logits, after = model.step(ids, tf.nest.pack_sequence_as(initial, list(state)))
        new = {f"new_{name}": part for (name, _), part in zip(parts, tf.nest.flatten(after), strict=True)}
        return {"logits": logits, **new}

    signature = [
        tf.TensorSpec((None, 1), tf.int32, name="ids"),
        *(tf.TensorSpec((None, *part.shape[1:]), part.dtype, name=name) for name, part in parts),
    ]
    with atomic_write(path) as temporary:
        tf2onnx.convert.from_function(
            tf.function(step, input_signature=signature), input_signature=signature, opset=OPSET, output_path=temporary
        )
