"""How many floating-point operations a model costs, counted from its layers as they are built.

    forward    2 x numbers of every matrix that a position goes through       a multiplication and an addition each
               + attention  2 T H (K + K')        scores and values over all T, what a mask hides too
               + convolution  2 K D
               + scans  2 for each number of a linear state; Mamba: 6 E N (decay, input, state, output)
    training   3 x forward                         the gradients by weights and by inputs cost a forward pass each

(Kaplan et al., 2020, section 2.1.) Looking up an embedding costs nothing; as an output matrix it costs what any matrix
does. What grows with the width alone is left out: biases, norms, activations, softmax, rotations, residual sums.
"""

import math

import keras

from keras_seq.layers import CausalDepthwiseConv1D, LearnedPositions, MinGRU, MinLSTM, SelectiveStateSpace
from keras_seq.layers.attention import MultiHeadAttentionBase
from keras_seq.layers.introspection import iter_layers
from keras_seq.layers.recurrent_base import RecurrentBase
from keras_seq.models.language_model import LanguageModel

TRAIN_MULTIPLIER = 3  # times the forward pass
NO_MATMUL_LAYERS = (keras.layers.Embedding, LearnedPositions)


def flops_per_token(model, length: int, training: bool = False) -> int:
    """The floating-point operations for one position of a window.

    Args:
        model: a built `LanguageModel`.
        length: T, the positions of a window, among which attention goes.
        training: whether to count the backward pass too.

    Raises:
        ValueError: a layer has a matrix that this module does not know how to count.
    """
    forward = sum(_layer_flops(layer, length) for layer in iter_layers(model, attributes=True))
    return forward * (TRAIN_MULTIPLIER if training else 1)


def _layer_flops(layer, length):
    """The cost of a layer without that of the layers inside it."""
    match layer:
        case LanguageModel(head=None):
            return 2 * math.prod(layer.embedding.embeddings.shape)
        case keras.layers.Dense():
            return 2 * math.prod(layer.kernel.shape)
        case RecurrentBase():
            return 2 * (math.prod(layer.kernel.shape) + math.prod(layer.recurrent_kernel.shape))
        case MinGRU() | MinLSTM():
            return 2 * math.prod(layer.kernel.shape) + 2 * layer.units
        case SelectiveStateSpace():
            return 6 * math.prod(layer.log_a.shape)
        case CausalDepthwiseConv1D():
            return 2 * math.prod(layer.kernel.shape)
        case MultiHeadAttentionBase():
            heads = layer.query_dense.units + layer.output_dense.kernel.shape[0]  # H K + H K'
            return 2 * length * heads
    matrices = [v.path for v in vars(layer).values() if isinstance(v, keras.Variable) and len(v.shape) > 1]
    if matrices and not isinstance(layer, NO_MATMUL_LAYERS):
        raise ValueError(f"{layer.name}: what {', '.join(matrices)} costs is not known; expected layers of keras_seq.")
    return 0
