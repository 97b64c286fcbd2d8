"""Count what a model computes and holds: floating-point operations, parameters of a Transformer block.

    forward    2 x size of every matrix that a position is multiplied with     a multiplication and an addition each
               + attention  2 T H (K + K')        scores and values over all T, masked ones included
               + convolution  2 K D
               + scans  2 for each element of a linear state; Mamba: 6 E N (decay, input, state, output)
               + matrix states  5 for each element (decay, 2 to write, 2 to read); n delta rules: 3 + 6 n
    training   3 x forward                         the gradients of weights and inputs cost a forward pass each

(Kaplan et al., 2020, arXiv:2001.08361, section 2.1.) An embedding lookup costs nothing; a tied embedding counts as the
output matrix. Costs linear in the width are left out: biases, norms, activations, softmax, rotations, residual sums.
"""

import math

import keras

from keras_seq.layers import (
    CRF,
    MLSTM,
    RGLRU,
    SLSTM,
    CausalDepthwiseConv1D,
    GatedDeltaNet,
    GatedLinearAttention,
    KimiDeltaAttention,
    LearnedPositions,
    Mamba2,
    MinGRU,
    MinLSTM,
    RWKV7TimeMix,
    SegmentEmbedding,
    SelectiveStateSpace,
)
from keras_seq.layers.attention.multi_head_attention import MultiHeadAttentionBase
from keras_seq.layers.dense import BlockDiagonalDense
from keras_seq.layers.introspection import iter_layers
from keras_seq.layers.recurrent.base import RecurrentBase
from keras_seq.models.quantization import Quantizable

TRAIN_MULTIPLIER = 3  # times the forward pass
NO_MATMUL_LAYERS = (keras.layers.Embedding, LearnedPositions, SegmentEmbedding)


def flops_per_token(model, length: int, training: bool = False) -> int:
    """Count the floating-point operations for one position of a window."""
    forward = sum(_layer_flops(layer, length) for layer in iter_layers(model, attributes=True))
    return forward * (TRAIN_MULTIPLIER if training else 1)


def _layer_flops(layer, length):
    """Count the operations of a layer without those of its sublayers."""
    match layer:
        case Quantizable(head=None):  # a language model or an encoder-decoder
            return 2 * math.prod(layer.embedding.embeddings.shape)
        case Quantizable(name="masked_lm"):
            return 2 * math.prod(layer.get_layer("embedding").embeddings.shape)
        case keras.layers.Dense():
            return 2 * math.prod(layer.kernel.shape)
        case RecurrentBase():
            return 2 * (math.prod(layer.kernel.shape) + math.prod(layer.recurrent_kernel.shape))
        case MinGRU() | MinLSTM():
            return 2 * math.prod(layer.kernel.shape) + 2 * layer.units
        case SelectiveStateSpace():
            return 6 * math.prod(layer.log_a.shape)
        case RGLRU():
            return 2 * layer.decay.shape[0]
        case SLSTM():
            return 2 * math.prod(layer.recurrent_kernel.shape)
        case Mamba2() | GatedLinearAttention():
            return 5 * _state_size(layer)
        case MLSTM():
            return 5 * _state_size(layer) + 2 * math.prod(layer.gates_kernel.shape)
        case GatedDeltaNet():
            return (3 + 6 * layer.num_householder) * _state_size(layer)
        case KimiDeltaAttention() | RWKV7TimeMix():
            return 9 * _state_size(layer)
        case CausalDepthwiseConv1D() | BlockDiagonalDense():
            return 2 * math.prod(layer.kernel.shape)
        case CRF():
            return 2 * math.prod(layer.transitions.shape)  # a sum over pairs of tags
        case MultiHeadAttentionBase():
            heads = layer.query_dense.units + layer.output_dense.kernel.shape[0]  # H K + H K'
            return 2 * length * heads
    matrices = [v.path for v in vars(layer).values() if isinstance(v, keras.Variable) and len(v.shape) > 1]
    if matrices and not isinstance(layer, NO_MATMUL_LAYERS):
        raise ValueError(
            f"{layer.name}: the cost of {', '.join(matrices)} is unknown; expected a layer of keras_seq, or of Keras, "
            "that has its formula in keras_seq/models/counts.py."
        )
    return 0


def _state_size(layer):
    """Return the number of elements of the matrices that a layer with matrix states holds for a row."""
    parts = keras.tree.flatten(layer.get_initial_state(1))
    return sum(math.prod(part.shape) for part in parts if len(part.shape) == 4)  # [1, H, K, V]


def count_block_params(dim: int, feed_forward_dim: int, num_attentions: int = 1, use_bias: bool = True) -> int:
    """Return the number of parameters of a `TransformerBlock` with layer normalization."""
    attention = 4 * (dim * dim + use_bias * dim)  # query, key, value, output
    feed_forward = 2 * dim * feed_forward_dim + use_bias * (feed_forward_dim + dim)
    normalization = (1 + use_bias) * dim
    return num_attentions * attention + feed_forward + (num_attentions + 1) * normalization
