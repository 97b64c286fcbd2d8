"""keras_seq: sequence models for Keras 3.

Everything but the exports of `keras_seq.saving` and `callbacks.Profiler` runs on every backend of Keras. Importing
keras_seq registers layers and models, so that saved models load; the rest is imported on demand.
"""

from keras_seq import layers, models

__version__ = "0.2.0"
__all__ = ["generate", "layers", "models", "score", "stream"]


def __getattr__(name):
    """Import `generate`, `stream` and `score` on first use: loading a model needs neither."""
    if name in ("generate", "stream"):
        from keras_seq import generation

        return getattr(generation, name)
    if name == "score":
        from keras_seq import evaluation

        return evaluation.score_text
    raise AttributeError(f"module 'keras_seq' has no attribute {name!r}")
