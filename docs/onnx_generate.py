"""Continue a text by a character model in an ONNX file of keras_seq, with NumPy and onnxruntime alone.

Run `python onnx_generate.py model.onnx "ROMEO:" 200 0.8`: 200 characters at temperature 0.8; 0 takes the likeliest.
"""

import json
import sys

import numpy as np
import onnxruntime

path, prompt, count, temperature = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
session = onnxruntime.InferenceSession(path)
metadata = json.loads(session.get_modelmeta().custom_metadata_map["keras_seq"])
characters = metadata["tokenizer"]["characters"]
if metadata["tokenizer"]["oov_token"] is not None:
    characters = "\ufffd" + characters  # id 0, for all that have no id
limit, parts, random = metadata["context_length"] or np.inf, metadata["state"], np.random.default_rng()


def initial_state():
    """Return the arrays of one row before the first position."""
    shapes = [[1 if size is None else size for size in part["shape"]] for part in parts]
    return [np.resize(np.array(part["initial"], part["dtype"]), s) for part, s in zip(parts, shapes, strict=True)]


ids = [characters.index(c if c in characters else "\ufffd") for c in prompt]
state, start, read = initial_state(), 0, 0  # the state has ids[start:read]
print(prompt, end="")
for _ in range(count):
    while len(ids) - start > limit:  # it is full: begin again, half as far back
        start += max(1, limit // 2)
        state, read = initial_state(), start
    inputs = {part["name"]: x for part, x in zip(parts, state, strict=True)}
    logits, *state = session.run(None, {"ids": np.array([ids[read:]], "int32"), **inputs})
    read, scores = len(ids), logits[0, -1].astype("float64")
    if temperature:  # the largest of these is a draw by softmax(logits / temperature)
        scores = scores / temperature + random.gumbel(size=scores.shape)
    ids.append(int(scores.argmax()))
    print(characters[ids[-1]], end="", flush=True)
print()
