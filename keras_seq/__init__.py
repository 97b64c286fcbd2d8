"""keras_seq: sequence models for Keras 3.

Layers, models, training and generation run on every backend of Keras. `callbacks.Profiler` and the format `keras` of
`keras-seq export` need TensorFlow, several devices need JAX; `export` starts a process with the backend that it needs.
Importing keras_seq registers layers and models, so that saved models load; the rest is imported on demand.
"""

import importlib
import pathlib
import sys

__version__ = "0.2.0"
__all__ = ["export", "generate", "layers", "load_run", "models", "report", "score", "stream", "train"]

_HOMES = {
    **{"generate": "generation", "stream": "generation", "export": "saving"},
    **{"train": "runs", "load_run": "runs", "report": "runs"},
}
_PACKAGES = {path.parent.name for path in pathlib.Path(__file__).parent.glob("*/__init__.py")}


def __getattr__(name):
    """Import on first use: loading a model needs neither `train` nor `generate`."""
    if name == "score":
        return importlib.import_module("keras_seq.evaluation").score_text
    if name in _HOMES or name in _PACKAGES:
        try:
            home = importlib.import_module(f"keras_seq.{_HOMES.get(name, name)}")
        except ModuleNotFoundError as error:
            raise ImportError(f'keras_seq.{name} needs {error.name}: pip install "keras_seq[command]".') from error
        return getattr(home, name) if name in _HOMES else home
    raise AttributeError(f"module 'keras_seq' has no attribute {name!r}")


def __dir__():
    return __all__


def _is_own_program():
    """Return whether this is `keras-seq` or an experiment, which read their options before Keras takes its seconds."""
    program = pathlib.PurePath(*sys.argv[:1]).stem
    experiments = getattr(sys.modules.get("experiments"), "__file__", None)
    own = pathlib.Path(__file__).resolve().parents[1] / "experiments" / "__init__.py"
    is_experiment = experiments is not None and pathlib.Path(experiments).resolve() == own
    return program == "keras-seq" or sys.orig_argv[1:3] == ["-m", "keras_seq"] or is_experiment


if not _is_own_program():
    from keras_seq.backends import require_backend

    require_backend()
    from keras_seq import layers, models
