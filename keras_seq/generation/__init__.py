"""From a model and a prompt to text."""

from keras_seq.generation.generate import Generator
from keras_seq.generation.samplers import draw, keep_top_k

__all__ = ["Generator", "draw", "keep_top_k"]
