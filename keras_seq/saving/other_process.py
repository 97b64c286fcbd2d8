"""Let a process with another backend of Keras write a file of a model; it ends with this one."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import keras_seq
from keras_seq.layers.introspection import iter_layers
from keras_seq.saving.keras_file import save_model

CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from keras_seq.saving.exporter import main; main()"


def write_in_another_process(model, path, format: str, backend: str, tokenizer, options: dict) -> str | None:
    """Save the model, and let a process with the other backend load it and write the file; return why it could not."""
    with tempfile.TemporaryDirectory() as folder:
        saved, written, request = (pathlib.Path(folder, name) for name in ("model.keras", "written", "request.json"))
        save_model(model, saved)
        config = None if tokenizer is None else tokenizer.get_config()
        modules = {type(layer).__module__ for layer in iter_layers(model, attributes=True)}
        others = sorted(name for name in modules if name.split(".")[0] not in ("keras", "keras_seq", "__main__"))
        text = json.dumps([str(saved), str(written), format, config, options, sys.path, others])
        request.write_text(text, encoding="utf-8")
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, os.path.dirname(os.path.dirname(keras_seq.__file__)), str(request)],
            env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            errors = child.stderr.read()  # until it ends; its input stays open as long as this process lives
            code = child.wait()
        finally:
            child.kill()
            child.stdin.close()
            child.stderr.close()
        if code:
            return (errors.strip().splitlines() or ["it ended without a message"])[-1]
        if written.is_dir():
            shutil.copytree(written, path, dirs_exist_ok=True)
        else:
            shutil.copyfile(written, path)
        return None
