"""Read predictions from the inside of a model: the logit lens (nostalgebraist, 2020; arXiv:2303.08112).

    lens_l = head(norm(h_l))      h_l: output of layer l; norm, head: those that follow the last layer

The model itself computes it, with the output of its last layer replaced by h_l; at the last layer that changes nothing.
Where layers add to a residual stream, as in a Transformer or Mamba, the rows show how a prediction comes about. Stacked
LSTMs have no common basis: there, the logits of lower layers need not mean anything.
"""

from collections.abc import Sequence

import keras
import numpy as np

from keras_seq.interpretability.activations import layer_outputs, logits_given
from keras_seq.layers import Dense, LayerNormalization, RMSNormalization

READOUT = (
    *(LayerNormalization, RMSNormalization, Dense),
    *(keras.layers.LayerNormalization, keras.layers.RMSNormalization, keras.layers.Dense, keras.layers.Dropout),
)


def readout(model) -> list:
    """Return the blocks at the end of a `LanguageModel` that only map each position: normalization, projection."""
    blocks = []
    for block in reversed(model.blocks):
        if not isinstance(block, READOUT):
            break
        blocks.insert(0, block)
    return blocks


def logit_lens(model: keras.Model, ids, layers: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Return the logits that the end of a model makes of each layer's output.

    ```python
    lens = logit_lens(model, tokenizer.encode("To be")[None])  # {"embedding": [1, 5, V], "block_0": ...}
    ```

    Args:
        model: A `LanguageModel`, or any Keras model if `layers` is given.
        ids: Its input, `[B, T]`.
        layers: Names of layers of one width, in the order of the computation: what follows the last one reads the
            output of each. None for the embedding and the blocks before the last normalization.

    Returns:
        Arrays `[B, T, V]` by name, in the order of the computation. Layers of another width than the last one, which
        the head cannot read, are left out if `layers` is None.

    Raises:
        ValueError: There is no layer, one does not exist or has another width than the last one, or the model is no
            `LanguageModel` and `layers` is None.
    """
    if layers is not None and not len(layers):
        raise ValueError("layers is empty; expected at least one name.")
    outputs = layer_outputs(model, ids, layers)
    if layers is None:
        outputs = {name: x for name, x in outputs.items() if name not in {block.name for block in readout(model)}}
        width = [*outputs.values()][-1].shape[-1]
        outputs = {name: x for name, x in outputs.items() if x.shape[-1] == width}
    last = [*(outputs if layers is None else layers)][-1]
    return {name: logits_given(model, ids, {last: x}) for name, x in outputs.items()}
