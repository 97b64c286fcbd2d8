"""Recompute what the blocks of a model compute, instead of storing it for the gradient: less memory, more time.

    stored for the gradient: the input of each block (Chen et al., 2016, arXiv:1604.06174), computed twice: each block

Keras's `RematScope` would compute a block the second time with other dropout masks, because the first call advances its
seeds. Here a block is a function of its input, weights and seeds, as `keras.remat` expects.
"""

import functools

import keras

from keras_seq.layers import PreNormResidual, TransformerBlock
from keras_seq.layers.introspection import iter_layers
from keras_seq.ops.tensor_checks import dtype_of
from keras_seq.training.option_effects import OptionError


def rematerialize_blocks(model: keras.Model) -> None:
    """Have each `TransformerBlock` and `PreNormResidual` of a model computed again for the gradient.

    Args:
        model: A built model.

    Raises:
        OptionError: If it has no such block.
    """
    blocks = [layer for layer in iter_layers(model) if isinstance(layer, TransformerBlock | PreNormResidual)]
    if not blocks:
        raise OptionError(f"rematerialization=True, but {model.name} has no TransformerBlock and no PreNormResidual.")
    for block in blocks:
        if "call" not in vars(block):  # else it is done
            block.call = _rematerialized(block, block.call)


def _rematerialized(block, call):
    """Return the `call` of a block, computed again for the gradient in training."""

    @functools.wraps(call)
    def wrapper(*args, training=None, **kwargs):
        if not training:
            return call(*args, training=training, **kwargs)
        leaves = keras.tree.flatten((args, kwargs))
        inputs = [n for n, x in enumerate(leaves) if keras.ops.is_tensor(x) and "float" in dtype_of(x)]
        # copies: the variables change before the gradient is computed
        state = [(variable, keras.ops.copy(variable)) for variable in block.non_trainable_variables]

        def function(*tensors):
            own_leaves = {**dict(enumerate(leaves)), **dict(zip(inputs, tensors, strict=False))}
            own_args, own_kwargs = keras.tree.pack_sequence_as((args, kwargs), [*own_leaves.values()])
            weights = zip(block.trainable_variables, tensors[len(inputs) :], strict=True)
            with keras.StatelessScope([*weights, *state], collect_losses=True) as scope:
                outputs = call(*own_args, training=training, **own_kwargs)
            return outputs, [scope.get_current_value(variable) for variable, _ in state], scope.losses

        # tensors, since eager TensorFlow counts the gradient of a variable twice
        weights = [keras.ops.copy(variable) for variable in block.trainable_variables]
        outputs, new_state, losses = keras.remat(function)(*(leaves[n] for n in inputs), *weights)
        block.add_loss(losses)  # those of activity regularizers
        for (variable, _), value in zip(state, new_state, strict=True):
            variable.assign(value)
        return outputs

    return wrapper
