"""Sampling by the formulas of `samplers.py`, in float64 NumPy, one row at a time."""

import numpy as np
from scipy.special import softmax


def sample(
    logits, uniform, temperature=1.0, top_k=None, top_p=None, min_p=None, typical_p=None, in_text=(), penalty=1.0
):
    """Draw an id from logits `[V]` by a number in [0, 1)."""
    z = np.asarray(logits, "float64").copy()
    for n in {*in_text}:
        z[n] = z[n] / penalty if z[n] > 0 else z[n] * penalty
    order = np.argsort(-z, kind="stable")
    if temperature == 0:
        return int(order[0])
    p = softmax(z[order] / temperature)
    p = softmax(np.log(p[:top_k])) if top_k else p  # smaller than V
    if top_p:
        p = p[: 1 + np.searchsorted(np.cumsum(p), top_p)]
        p = p / p.sum()
    if min_p:
        p = p[p >= min_p * p[0]]
        p = p / p.sum()
    if typical_p:
        distance = np.abs(-np.log(p) + (p * np.log(p)).sum())
        nearest = np.argsort(distance, kind="stable")
        nearest = nearest[: 1 + np.searchsorted(np.cumsum(p[nearest]), typical_p)]
        p = np.where(np.isin(np.arange(len(p)), nearest), p, 0)
        p = p / p.sum()
    return int(order[np.searchsorted(np.cumsum(p), uniform, side="right")])
