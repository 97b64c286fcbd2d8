"""Export one step of a recurrent model as an ONNX file, for runtimes without TensorFlow.

    inputs   ids [B, 1] int32, state_0 ... state_n [B, ...]
    outputs  logits [B, V], new_state_0 ... new_state_n       the states of the next step; the first are zeros

`tf2onnx` does not convert other models: it lacks the cache's slice updates, erf, and XLA loops.
"""

import importlib.util
import os
import pathlib

from keras_seq import checks
from keras_seq.atomic_files import atomic_write
from keras_seq.layers.introspection import has_time_loop

OPSET = 17


def export_onnx(model, path: str | os.PathLike) -> None:
    """Write one step of a model as an ONNX file, atomically.

    Args:
        model: A `LanguageModel` of SimpleRNN, GRU or LSTM layers.
        path: The file to write; it must not exist.

    Raises:
        ValueError: The model has no such layers, `tf2onnx` is not installed, `path` exists, or Keras's backend is not
            TensorFlow.
    """
    path = pathlib.Path(path)
    if path.exists():
        raise ValueError(f"{path} exists already; expected the name of a new file.")
    if not has_time_loop(model):
        raise ValueError(f"{model.name} cannot be exported to ONNX; expected a model of SimpleRNN, GRU or LSTM layers.")
    checks.tensorflow_backend("An ONNX file")
    if importlib.util.find_spec("tf2onnx") is None:
        raise ValueError('ONNX files need tf2onnx, which is not installed: pip install -e ".[onnx]" in its clone.')
    import tensorflow as tf  # here, as other backends do without it
    import tf2onnx

    initial_state = model.get_initial_state(1)
    parts = [(f"state_{n}", part) for n, part in enumerate(tf.nest.flatten(initial_state))]

    def step(ids, *state):
        logits, new_state = model.step(ids, tf.nest.pack_sequence_as(initial_state, list(state)))
        new_parts = {f"new_{name}": part for (name, _), part in zip(parts, tf.nest.flatten(new_state), strict=True)}
        return {"logits": logits, **new_parts}

    signature = [
        tf.TensorSpec((None, 1), tf.int32, name="ids"),
        *(tf.TensorSpec((None, *part.shape[1:]), part.dtype, name=name) for name, part in parts),
    ]
    with atomic_write(path) as temporary:
        tf2onnx.convert.from_function(
            tf.function(step, input_signature=signature, autograph=False),
            input_signature=signature,
            opset=OPSET,
            output_path=temporary,
        )
