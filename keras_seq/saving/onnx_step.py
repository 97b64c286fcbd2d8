"""Export one step of a recurrent model as an ONNX file, for runtimes without TensorFlow.

    inputs   ids [B, 1] int32, state_0 ... state_n [B, ...]
    outputs  logits [B, V], new_state_0 ... new_state_n       the states of the next step; the first are zeros

`tf2onnx` does not convert other models: it lacks the cache's slice updates, erf, and XLA loops. What it writes instead,
and what it makes of float16, is refused by the checker of the `onnx` package or here.
"""

import os
import pathlib

from keras_seq import checks
from keras_seq.files import atomic_write
from keras_seq.layers.introspection import has_time_loop, iter_layers

OPSET = 17


def export_onnx(model, path: str | os.PathLike) -> None:
    """Write one step of a model as an ONNX file, atomically."""
    path = pathlib.Path(path)
    if path.exists():
        raise ValueError(f"{path} exists already; expected the name of a new file.")
    if not (has_time_loop(model) and hasattr(model, "step")):
        raise _refused(model)
    low = {layer.compute_dtype for layer in iter_layers(model)} & {"float16", "bfloat16"}
    if low:
        raise ValueError(
            f"{model.name} computes in {low.pop()}, which tf2onnx converts wrongly: give its weights to a model that "
            'is built with dtype="float32", and export that.'
        )
    checks.tensorflow_backend("An ONNX file")
    try:
        import onnx  # here, as other backends do without them
        import tensorflow as tf
        import tf2onnx
    except ImportError as error:
        raise ValueError(
            f"ONNX files need tf2onnx, which cannot be imported ({error}): pip install tf2onnx onnxruntime."
        ) from None
    initial_state = model.get_initial_state(1)
    parts = [(f"state_{n}", part) for n, part in enumerate(tf.nest.flatten(initial_state))]
    if not all(part.shape.rank and part.shape[0] == 1 for _, part in parts):
        raise _refused(model)  # a cache

    def step(ids, *state):
        logits, new_state = model.step(ids, tf.nest.pack_sequence_as(initial_state, list(state)))
        new_parts = {f"new_{name}": part for (name, _), part in zip(parts, tf.nest.flatten(new_state), strict=True)}
        return {"logits": logits, **new_parts}

    signature = [
        tf.TensorSpec((None, 1), tf.int32, name="ids"),
        *(tf.TensorSpec((None, *part.shape[1:]), part.dtype, name=name) for name, part in parts),
    ]
    step = tf.function(step, input_signature=signature, autograph=False)
    converted, _ = tf2onnx.convert.from_function(step, input_signature=signature, opset=OPSET)
    try:
        onnx.checker.check_model(converted, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise _refused(model, f" ({str(error).splitlines()[0]})") from None
    with atomic_write(path) as temporary:
        temporary.write_bytes(converted.SerializeToString())


def _refused(model, reason=""):
    return ValueError(
        f"{model.name} cannot be exported to ONNX{reason}; expected a model of SimpleRNN, GRU or LSTM layers."
    )
