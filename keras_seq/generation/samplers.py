"""From logits to an id.

temperature   softmax(logits / temperature): below one sharper, above one flatter, zero: the likeliest id
top-k         all but the k likeliest ids get probability zero
"""

import numpy as np


def keep_top_k(logits, k):
    """Logits `[B, V]` with all but the `k` highest of each row set to minus infinity; of equal ones the first stay."""
    dropped = np.argsort(-logits, axis=-1, kind="stable")[:, k:]
    kept = logits.copy()
    np.put_along_axis(kept, dropped, -np.inf, axis=-1)
    return kept


def draw(logits, temperature, top_k, random):
    """Ids `[B]` from logits `[B, V]`, by the Gumbel trick: argmax(logits / temperature + noise).

    Args:
        logits: `[B, V]`, any float type; worked on in float64.
        temperature: 0 or more.
        top_k: how many ids may be drawn, or None for all.
        random: a `numpy.random.Generator`.
    """
    logits = np.asarray(logits, "float64")
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if temperature == 0:
        return logits.argmax(-1)
    with np.errstate(over="ignore"):  # the highest is zero: those that overflow are too unlikely to be drawn
        logits = (logits - logits.max(-1, keepdims=True)) / temperature
    return (logits + random.gumbel(size=logits.shape)).argmax(-1)
