"""From a model and a prompt to text."""

from keras_seq.generation.contrastive import contrastive_search
from keras_seq.generation.decode import Decoder
from keras_seq.generation.generate import Generator, generate, stream
from keras_seq.generation.samplers import STEPS, Sampling, draw
from keras_seq.generation.search import beam_search, greedy

__all__ = [
    "STEPS",
    "Decoder",
    "Generator",
    "Sampling",
    "beam_search",
    "contrastive_search",
    "draw",
    "generate",
    "greedy",
    "stream",
]
