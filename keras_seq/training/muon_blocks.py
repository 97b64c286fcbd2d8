"""Which weights Muon orthogonalizes, and in how many parts: a rule of names, shapes and classes of layers.

1    a matrix
n    n matrices side by side along the last axis, each orthogonalized by itself: the gates of an LSTM
0    numbers of features, even where they have two axes: a depthwise convolution, decay rates, embeddings
"""

from keras_seq.layers import MLSTM, SLSTM, CausalDepthwiseConv1D, Mamba2, SelectiveStateSpace
from keras_seq.layers.dense import BlockDiagonalDense
from keras_seq.layers.recurrent.min_rnn import MinimalRNN
from keras_seq.layers.recurrent.rnn import RecurrentBase

PARTS_OF_PATHS = {"embeddings", "head", "lora_kernel_a", "lora_kernel_b"}  # of what is no hidden matrix
TABLES = (
    "bias",
    "log_a",
    "bonus",
    "gates_kernel",
    "_lora_a",
    "_lora_b",
)  # ends of names, in the layers of this package
TWO_IN_ONE = {  # matrices of layers inside of a layer that splits their outputs
    SelectiveStateSpace: ("input/kernel",),
    Mamba2: ("input/kernel", "bc/kernel"),
    MLSTM: ("input/kernel",),
}
SMALLEST_BLOCK = 9  # rows; of block-diagonal matrices: many tiny ones are left to AdamW


def muon_blocks(variable) -> int:
    """Return the number of matrices in a weight, 0 if it is none.

    A weight's own attribute `muon_blocks`, of a layer from elsewhere, comes before the rule.
    """
    if PARTS_OF_PATHS & set(variable.path.split("/")) or len(variable.shape) != 2:
        return 0
    layer, (rows, columns) = getattr(variable, "layer_class", object), variable.shape
    if hasattr(variable, "muon_blocks"):
        return variable.muon_blocks
    if layer is object:  # not of this package
        return 1
    if variable.name.endswith(TABLES) or issubclass(layer, CausalDepthwiseConv1D):
        return 0
    if issubclass(layer, (RecurrentBase, MinimalRNN)):
        return layer.num_gates
    if issubclass(layer, BlockDiagonalDense) or (variable.name == "recurrent_kernel" and issubclass(layer, SLSTM)):
        return columns // rows if rows >= SMALLEST_BLOCK else 0
    ends = [end for kind, names in TWO_IN_ONE.items() if issubclass(layer, kind) for end in names]
    return 2 if variable.path.endswith(tuple(f"/{end}" for end in ends)) else 1
