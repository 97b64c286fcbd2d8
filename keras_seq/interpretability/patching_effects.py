"""Locate where a text differs for a model from another: patch one layer at one position at a time.

    effect = 1 - KL(p_source || p_patched) / KL(p_source || p)          of the predictions after the last token

0: the patch changes nothing; 1: the model now predicts what it does for the source text; below 0: it leads away.
The two texts are alike but for a few tokens, as in Meng et al. (2022), arXiv:2202.05262.
"""

from collections.abc import Collection

import keras
import numpy as np

from keras_seq.generation.search import log_softmax
from keras_seq.interpretability.activations import inspected_layers, patched_logits, to_numpy

BATCH_SIZE = 32  # positions patched in one forward pass, each in a row of its own


def patching_effects(
    model: keras.Model, ids, source_ids, layers: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Return the effect of each layer at each position on the prediction after the last token.

    ```python
    effects = patching_effects(model, tokenizer.encode("a cat"), tokenizer.encode("a dog"))
    ```

    Args:
        model: A `LanguageModel`, or any Keras model if `layers` is given.
        ids: The text, `[T]`.
        source_ids: Another text of the same length, `[T]`.
        layers: Names of layers; None for the embedding and the blocks of a `LanguageModel`.

    Returns:
        `[T]` by the name of the layer, in the order of the computation.

    Raises:
        ValueError: The texts have not the same length or make the same prediction, or a layer does not exist.
    """
    ids, source_ids = np.asarray(ids), np.asarray(source_ids)
    if ids.ndim != 1 or ids.shape != source_ids.shape:
        raise ValueError(f"The texts have {ids.size} and {source_ids.size} tokens; expected two of the same length.")
    log_p, log_p_source = log_softmax(to_numpy(model(np.stack([ids, source_ids]), training=False))[:, -1])
    distance = _divergence(log_p_source, log_p)
    if not distance > 1e-9:
        raise ValueError("The model predicts the same after both texts; expected texts after which it does not.")
    masks = np.eye(len(ids), dtype=bool)
    effects = {}
    for name in inspected_layers(model, layers):
        parts = []
        for mask in np.split(masks, range(BATCH_SIZE, len(ids), BATCH_SIZE)):
            rows = np.broadcast_to(ids, mask.shape)
            logits = patched_logits(model, rows, source_ids[None], [name], mask)[:, -1]
            parts.append(1 - _divergence(log_p_source, log_softmax(logits)) / distance)
        effects[name] = np.concatenate(parts)
    return effects


def _divergence(log_p, log_q):
    return np.sum(np.exp(log_p) * (log_p - log_q), axis=-1)
