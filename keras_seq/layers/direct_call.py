"""Base class of layers that are called inside of others, many times in a step."""

import inspect

from keras_seq import kernels
from keras_seq.layers.matrix import KeepsMatrixModes
from keras_seq.layers.onnx_refusal import refuse_onnx_export

SPELLINGS = {  # of arguments in Keras, KerasHub, PyTorch, transformers and tutorials, and here
    **dict.fromkeys(("intermediate_dim", "intermediate_size", "dim_feedforward", "hidden_dim"), "feed_forward_dim"),
    **dict.fromkeys(("ff_dim", "ffn_dim", "mlp_dim", "d_ff", "dff"), "feed_forward_dim"),
    **dict.fromkeys(("num_attention_heads", "num_query_heads", "nhead", "n_head", "n_heads", "heads"), "num_heads"),
    **{"num_kv_heads": "num_key_value_heads", "head_dim": "key_dim", "head_size": "key_dim"},
    **{"hidden_size": "units", "num_units": "units", "dropout_rate": "dropout", "rate": "dropout"},
    **{"is_causal": "causal", "use_causal_mask": "causal"},
}


class DirectCall(KeepsMatrixModes):
    """Base class of layers that need not be called through Keras where that only takes time.

    List it before a Keras class. `call` casts weights to the dtype of the input, and passes `training` on;
    `float_weight` names one of the layer's own weights, if it has any, whose dtype shows what Keras's autocast does.

    Args:
        **kwargs: Those of the other base class.
    """

    float_weight = None

    def __new__(cls, *args, **kwargs):
        """Refuse an argument by the name that it has elsewhere, of which Python would say less."""
        for name in SPELLINGS.keys() & kwargs.keys():
            arguments = inspect.signature(cls.__init__).parameters
            if name not in arguments and SPELLINGS[name] in arguments:
                raise ValueError(f"{cls.__name__} has no argument {name}={kwargs[name]!r}; expected {SPELLINGS[name]}.")
        return super().__new__(cls, *args, **kwargs)

    def __call__(self, *args, **kwargs):
        """Apply the layer."""
        direct_call = kernels.dispatch("direct_call", None, self, args, kwargs)
        if direct_call is None:
            return super().__call__(*args, **kwargs)
        if not self.exports_to_onnx:
            refuse_onnx_export(self)
        return direct_call(self, args, kwargs)
