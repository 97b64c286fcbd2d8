"""Angles, softmax and sums of squares are float32 at least; the result is cast at the edge."""

import keras


def at_least_float32(dtype):
    """`"float64"` for float64, else `"float32"`. (`keras.backend.result_type` narrows float64 on JAX and torch.)"""
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"
