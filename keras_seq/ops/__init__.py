"""The formulas that layers compute, by folder: a reference of each operation, and what backends have beside it.

`attention/__init__.py` is the formula in `keras.ops`, right on every backend. `attention/tensorflow.py`, `jax.py` and
`torch.py` compute the same values and gradients in less time: twins with the signature of the reference. A predicate on
backend, device, dtype and shapes chooses (`dispatch.py`), and in the context `with keras_seq.ops.reference():`
references run everywhere.
"""

from keras_seq.ops.dispatch import reference

__all__ = ["reference"]
