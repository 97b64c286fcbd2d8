"""Choose the dtype of angles, softmax and sums of squares: float32 or wider; results are cast back."""

import keras


def at_least_float32(dtype) -> str:
    """Return `"float64"` for float64, else `"float32"`.

    (`keras.backend.result_type` narrows float64 on JAX and torch.)
    """
    return "float64" if keras.backend.standardize_dtype(dtype) == "float64" else "float32"
