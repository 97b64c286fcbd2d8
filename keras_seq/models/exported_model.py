"""Run a file that `keras_seq.export` wrote, by onnxruntime or LiteRT, with the two calls of a `LanguageModel`.

    model = OnnxModel("model.onnx")
    logits = model(ids)                                 ids [B, T] -> logits [B, T, V]
    logits, state = model.step(ids, state)              ids [B, 1] -> logits [B, V];  state = model.get_initial_state(B)
    text = keras_seq.generate(model, model.tokenizer, "ROMEO:")

All arrays are NumPy's. The file says the names, shapes and first values of the state, and holds the tokenizer:

    {"state": [{"name": "state_0_key", "shape": [null, 64, 4, 32], "dtype": "float32", "initial": 0.0}, ...], ...}

The outputs of a call are `logits` and `new_state_0_key`, ...; null is the batch size.
"""

import dataclasses
import functools
import json
import os
import pathlib
import threading
import zipfile

import numpy as np
from keras import ops, tree

from keras_seq import checks
from keras_seq.models.token_ids import as_ids
from keras_seq.ops import tensor_checks

METADATA = "keras_seq"  # key of ONNX's metadata; with .json the file in the zip archive at the end of a LiteRT file


@dataclasses.dataclass(frozen=True)
class StatePart:
    """One tensor of a state."""

    name: str  # of the input; that of the output begins with new_
    shape: tuple  # None is the batch size
    dtype: str
    initial: object  # value before the first position: a number, or nested lists without the batch axis

    @property
    def batch_axis(self) -> int | None:
        """Return the axis of the rows, or None if all rows share the tensor."""
        return self.shape.index(None) if None in self.shape else None

    def take(self, x: np.ndarray, rows) -> np.ndarray:
        """Return these rows of the tensor, or all of it if the rows share it."""
        return x if self.batch_axis is None else x.take(rows, self.batch_axis)

    def shape_of(self, batch_size: int) -> tuple:
        """Return the shape of so many rows."""
        return tuple(batch_size if size is None else size for size in self.shape)

    def first(self, batch_size: int) -> np.ndarray:
        """Return the value before the first position."""
        initial = np.asarray(self.initial, self.dtype)
        if initial.ndim and self.batch_axis is not None:
            initial = np.expand_dims(initial, self.batch_axis)
        return np.broadcast_to(initial, self.shape_of(batch_size)).copy()


def state_parts(model, capacity: int | None = None) -> tuple[list[StatePart], object]:
    """Return the tensors of a built language model's state, and a state of one row, whose structure they have."""
    one, two = (model.get_initial_state(size, *(() if capacity is None else (capacity,))) for size in (1, 2))
    parts, others = [], named_tensors(two)
    for name, first in named_tensors(one).items():
        other = others[name]
        axes = [axis for axis, sizes in enumerate(zip(first.shape, other.shape, strict=True)) if sizes == (1, 2)]
        shape = tuple(None if axis in axes[:1] else size for axis, size in enumerate(first.shape))
        values = ops.convert_to_numpy(first)
        values = values.squeeze(axes[0]) if axes else values
        initial = values.flat[0].item() if values.size and (values == values.flat[0]).all() else values.tolist()
        parts.append(StatePart(name, shape, tensor_checks.dtype_of(first), initial))
    return parts, one


def named_tensors(state) -> dict:
    """Return the tensors of a nested state by the names that they have in a file; backends order them differently."""
    return {"_".join(["state", *map(str, path)]): tensor for path, tensor in tree.flatten_with_path(state)}


class ExportedModel:
    """A model in a file. It computes in NumPy arrays, outside of Keras: nothing compiles it or trains it."""

    is_exported = True
    embedding = head = None

    def __init__(self, path: str | os.PathLike, num_threads: int = 1):
        self.path = pathlib.Path(path)
        if not self.path.is_file():
            raise ValueError(f"{path} is not a file; expected one that keras_seq.export wrote.")
        text = self._load(checks.positive_integer("num_threads", num_threads))
        try:
            self.metadata = json.loads(text)
            self.name, self.vocabulary_size = self.metadata["name"], int(self.metadata["vocabulary_size"])
            self.context_length = self.metadata["context_length"]
            self.document_token = self.metadata["document_token"]
            self.state = [StatePart(**part | {"shape": tuple(part["shape"])}) for part in self.metadata["state"]]
            if {name: list(part.shape) for name, part in self.get_initial_state(1).items()} != self._state_shapes():
                raise ValueError
        except (TypeError, KeyError, ValueError):
            raise ValueError(f"{path} does not describe its state; expected a file of keras_seq.export.") from None

    def __repr__(self) -> str:
        """Return the class and the file."""
        return f"<{type(self).__name__} {self.path}>"

    @functools.cached_property
    def tokenizer(self):
        """The tokenizer in the file, or None."""
        from keras_seq.tokenizers import tokenizer_from_config  # imported late: characters have tables of TensorFlow

        config = self.metadata["tokenizer"]
        return None if config is None else tokenizer_from_config(config)

    def get_initial_state(self, batch_size: int, capacity: int | None = None) -> dict[str, np.ndarray]:
        """Return the state before the first position; `capacity` is that of the file."""
        checks.positive_integer("batch_size", batch_size)
        return {part.name: part.first(batch_size) for part in self.state}

    def __call__(self, ids, state=None, training=None, return_state: bool = False, mask=None):
        """Compute logits `[B, T, V]` for ids `[B, T]`, as a `LanguageModel`; a file has no training and no padding."""
        if training or mask is not None:
            raise ValueError(f"{self.path} is for inference without padding; expected training=False and mask=None.")
        ids = ops.convert_to_numpy(as_ids("ids", ids))
        if not len(ids):
            raise ValueError(f"ids has shape {ids.shape}; expected at least one row.")
        if self.context_length is not None and ids.shape[1] > self.context_length:
            limit = f"context_length={self.context_length}"
            raise ValueError(f"ids has {ids.shape[1]} positions; expected at most {limit}.")
        tensor_checks.ids_below("ids", ids, self.vocabulary_size)
        state = self.get_initial_state(len(ids)) if state is None else self._checked(state, len(ids))
        logits, state = self._run(np.ascontiguousarray(ids, "int32"), state)
        if self.context_length is not None and np.isnan(logits[..., 0]).any():
            limit = f"context_length={self.context_length}"
            raise ValueError(f"The state would hold more than {limit} positions: begin again from get_initial_state.")
        return (logits, state) if return_state else logits

    def step(self, ids, state):
        """Compute the logits of the next id, `[B, V]`, from one position, ids `[B, 1]`; return them and the state."""
        ids = as_ids("ids", ids)
        if ids.shape[1] != 1 or state is None:
            shape = tuple(ids.shape)
            raise ValueError(f"ids has shape {shape}; expected [B, 1], and the state of get_initial_state(B).")
        logits, state = self(ids, state, return_state=True)
        return logits[:, -1], state

    def _checked(self, state, batch_size):
        names = {part.name for part in self.state}
        if not isinstance(state, dict) or state.keys() != names:
            actual = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
            raise ValueError(f"state={actual}; expected {sorted(names)}, as get_initial_state returns them.")
        checked = {}
        for part in self.state:
            x = state[part.name]
            x = np.asarray(x if isinstance(x, np.ndarray) else ops.convert_to_numpy(x), order="C")
            shape = part.shape_of(batch_size)
            if x.shape != shape or not np.can_cast(x.dtype, part.dtype, "same_kind"):
                raise ValueError(f"{part.name} is {x.dtype} {x.shape}; expected {part.dtype} {shape}.")
            checked[part.name] = x.astype(part.dtype, copy=False)
        return checked

    def _load(self, num_threads) -> str:
        """Load the file, and return its metadata."""
        raise NotImplementedError

    def _state_shapes(self) -> dict[str, list]:
        """Return the shapes of the file's inputs but the ids, by name, for one row."""
        raise NotImplementedError

    def _run(self, ids, state):
        """Return the logits `[B, T, V]` and the new state, by name."""
        raise NotImplementedError


class OnnxModel(ExportedModel):
    """An ONNX file, run by onnxruntime, for any number of rows and positions.

    ```python
    model = OnnxModel("model.onnx")
    text = keras_seq.generate(model, model.tokenizer, "ROMEO:", max_new_tokens=200)
    score = keras_seq.score(model, model.tokenizer, "To be, or not to be")
    ```

    Args:
        path: The file that `keras_seq.export(..., format="onnx")` wrote.
        num_threads: Threads that compute a call.

    Raises:
        ValueError: The file cannot be read, or another program wrote it.
        ImportError: onnxruntime is not installed.
    """

    def _load(self, num_threads):
        try:
            import onnxruntime
        except ImportError:
            raise ImportError("An OnnxModel is run by onnxruntime: pip install onnxruntime.") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = num_threads, 3
        try:
            self.session = onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a class for each of its status codes, all of them private
            raise ValueError(f"{self.path} is not an ONNX file that onnxruntime can run: {error}") from None
        return self.session.get_modelmeta().custom_metadata_map.get(METADATA, "")

    def _state_shapes(self):
        inputs = {info.name: info.shape for info in self.session.get_inputs() if info.name != "ids"}
        return {name: [1 if isinstance(size, str) else size for size in shape] for name, shape in inputs.items()}

    def _run(self, ids, state):
        logits, *new = self.session.run(None, {"ids": ids, **state})
        return logits, dict(zip((part.name for part in self.state), new, strict=True))


class LiteRTModel(ExportedModel):
    """A LiteRT (TensorFlow Lite) file, run by ai-edge-litert.

    The file has one batch size; other numbers of rows are computed in several calls. It has passes of a few lengths;
    what they leave of another length is computed by steps.

    ```python
    model = LiteRTModel("model.tflite")
    text = keras_seq.generate(model, model.tokenizer, "ROMEO:", max_new_tokens=200)
    ```

    Arguments and errors are those of `OnnxModel`.
    """

    def _load(self, num_threads):
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError:
            raise ImportError("A LiteRTModel is run by ai-edge-litert: pip install ai-edge-litert.") from None
        try:
            with zipfile.ZipFile(self.path) as archive:
                text = archive.read(f"{METADATA}.json").decode()
            self.interpreter = Interpreter(str(self.path), num_threads=num_threads)
        except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError) as error:
            raise ValueError(f"{self.path} is not a file of keras_seq.export that LiteRT can run: {error}") from None
        self._lock, signatures = threading.Lock(), self.interpreter.get_signature_list()
        self.runners = {1: self.interpreter.get_signature_runner("step")} | {
            int(name.removeprefix("pass_")): self.interpreter.get_signature_runner(name)
            for name in signatures
            if name.startswith("pass_")
        }
        return text

    def _state_shapes(self):
        details, rows = self.runners[1].get_input_details(), self.metadata["batch_size"]
        shapes = {name: detail["shape"].tolist() for name, detail in details.items() if name != "ids"}
        for part in self.state:
            shape, axis = shapes[part.name], part.batch_axis
            if axis is not None and shape[axis] == rows:
                shape[axis] = 1
        return shapes

    def _run(self, ids, state):
        with self._lock:  # the interpreter has one memory for all calls
            return self._run_groups(ids, state)

    def _run_groups(self, ids, state):
        size, results = self.metadata["batch_size"], []
        for start in range(0, len(ids), size):
            rows = np.minimum(np.arange(start, start + size), len(ids) - 1)  # the last one again in the place of none
            results.append(self._run_rows(ids[rows], {p.name: p.take(state[p.name], rows) for p in self.state}))
        logits = np.concatenate([logits for logits, _ in results])[: len(ids)]
        new = {}
        for part in self.state:
            tensors = [state[part.name] for _, state in results]
            whole = tensors[0] if part.batch_axis is None else np.concatenate(tensors, part.batch_axis)
            new[part.name] = part.take(whole, np.arange(len(ids)))
        return logits, new

    def _run_rows(self, ids, state):
        parts, start = [], 0
        while start < ids.shape[1]:
            length = max(length for length in self.runners if length <= ids.shape[1] - start)
            outputs = self.runners[length](ids=ids[:, start : start + length], **state)
            logits, start = outputs.pop("logits"), start + length
            parts.append(logits[:, None] if length == 1 else logits)
            state = {part.name: outputs[f"new_{part.name}"] for part in self.state}
        return np.concatenate(parts, axis=1), state
