"""Write one HTML page in which models live: no server, no network, no library; `templates/engine.js` computes them.

    page      style, engine, script, then the data:
    model     <script class="model">  its graph, of `step_graph.py`, and what a reader is told, as JSON
              <script class="weights">  its weights in base64, little-endian, each from a multiple of 4 bytes on
    int8      q = round(w / scale), scale = max |w| / 127 of each block of 64 numbers in row-major order

Scripts come before the data, so that a page which is cut off says so. Vectors, small tensors and
constants stay in float32.
"""

import base64
import html
import json
import pathlib
import re
import zlib
from collections.abc import Sequence

import numpy as np
from keras import ops

FOLDER = pathlib.Path(__file__).parent / "templates"
BLOCK = 64  # numbers with one scale
MIN_ROUNDED = 1024  # numbers in the smallest tensor that is rounded


def round_weights(model) -> None:
    """Round the weights of a model, in place, to those that it has in a page in 8 bits."""
    for variable in model.variables:
        array = ops.convert_to_numpy(variable)
        if _is_rounded(array):
            scales, whole = _rounded(array)
            variable.assign((whole * np.repeat(scales, BLOCK)[: whole.size]).reshape(array.shape))


def _is_rounded(array):
    return array.dtype == np.float32 and array.ndim > 1 and array.size >= MIN_ROUNDED


def _rounded(array):
    """Return the scales of blocks, float32, and the whole numbers, int8 `[size]`."""
    padded = np.pad(array.ravel(), (0, -array.size % BLOCK)).reshape(-1, BLOCK)
    scales = np.abs(padded).max(axis=1) / np.float32(127)
    whole = np.rint(padded / np.where(scales > 0, scales, 1)[:, None]).astype("int8")
    return scales, whole.ravel()[: array.size]


def model_data(graph: dict, weights: Sequence[np.ndarray], metadata: dict, quantization: str | None) -> dict:
    """Return the data of one model in a page, ready for JSON: `"spec"`, and `"weights"` in base64.

    The graph and the weights are of `step_graph`, the metadata of the export; `quantization` is `"int8"` or None.
    """
    parts, entries = [], []
    variables = {value["weight"] for value in graph["values"] if value["op"] == "Variable" and "weight" in value}
    for number, array in enumerate(weights):
        entry = {"type": array.dtype.name, "size": array.size}
        if quantization is not None and number in variables and _is_rounded(array):
            entry["block"] = BLOCK
            arrays = _rounded(array)
        else:
            arrays = [array]
        entries.append(entry)
        for part in arrays:
            data = part.astype(part.dtype.newbyteorder("<")).tobytes()
            parts.append(data + bytes(-len(data) % 4))
    data = b"".join(parts)
    tokenizer, state = metadata["tokenizer"], []
    for part in metadata["state"]:
        shape = [1 if size is None else size for size in part["shape"]]
        kind = "int32" if part["dtype"] == "int64" else part["dtype"]  # as in the graph
        state.append({"name": part["name"], "shape": shape, "type": kind, "initial": part["initial"]})
    spec = {
        "context_length": metadata["context_length"],
        "characters": tokenizer["characters"],
        "unknown_id": None if tokenizer["oov_token"] is None else 0,
        **{"values": graph["values"], "logits": graph["logits"], "views": graph["views"]},
        **{"state": state, "new_state": graph["state"], "weights": entries},
        **{"bytes": len(data), "crc32": zlib.crc32(data)},
    }
    return {"spec": spec, "weights": base64.b64encode(data).decode()}


def page(models: Sequence[dict], titles: Sequence[str], descriptions: Sequence[str], title: str, text: str) -> str:
    """Return the page of models of `model_data`, with what a reader is told of each, that begins with a text."""
    about = _json({"title": title, "text": text, "models": len(models)})
    data = [_element(about, 'type="application/json" id="page-data"')]
    for model, name, description in zip(models, titles, descriptions, strict=True):
        spec = {**model["spec"], "title": name, "description": description}
        data.append(_element(_json(spec), 'type="application/json" class="model"'))
        data.append(_element(model["weights"], 'type="text/plain" class="weights"'))
    parts = {"title": html.escape(title, quote=False), "data": "\n".join(data)}
    for name, file in {"style": "page.css", "engine": "engine.js", "script": "page.js"}.items():
        parts[name] = (FOLDER / file).read_text(encoding="utf-8")
    template = (FOLDER / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def _element(content, attributes):
    return f"<script {attributes}>{content}</script>"


def _json(value):
    """Return JSON in which nothing ends a script element, begins a comment or is half a character."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")
