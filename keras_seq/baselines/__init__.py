"""Compute losses without training: n-gram models and general-purpose compressors."""

from keras_seq.baselines.baselines import COMPRESSORS, Baseline, compressed_bits, compute_baselines
from keras_seq.baselines.ngrams import KneserNeyNGrams

__all__ = [
    "COMPRESSORS",
    "Baseline",
    "KneserNeyNGrams",
    "compressed_bits",
    "compute_baselines",
]
