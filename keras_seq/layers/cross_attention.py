"""Cross-attention: one sequence asks, another answers (Bahdanau et al., 2015; Vaswani et al., 2017).

    q = x W_Q,   k, v = context W_K, context W_V,   y = softmax(q kᵀ / sqrt(K)) v W_O

While decoding, the context stays the same: its keys and values are computed once and are the state.
"""

from collections.abc import Mapping

import keras
from keras import ops

from keras_seq import checks
from keras_seq.layers.attention import MultiHeadAttentionBase
from keras_seq.layers.state_checks import check_state, shapes


@keras.saving.register_keras_serializable(package="keras_seq")
class CrossAttention(MultiHeadAttentionBase):
    """Multi-head attention from one sequence to another.

    ```python
    layer = CrossAttention(num_heads=4)
    y = layer(x, context=encoded, context_mask=real)  # x [B, T, D], encoded [B, S, D'] -> y [B, T, D]

    state = layer.project(encoded, context_mask=real)  # once
    y = layer(x[:, :1], state=state)  # equals layer(x, context=encoded, context_mask=real)[:, :1]
    ```

    Args:
        num_heads: H.
        key_dim: K, width of a query or key head; D / H unless given.
        value_dim: width of a value head; `key_dim` unless given.
        num_key_value_heads: heads of keys and values, a divisor of H; H unless given, 1 is multi-query attention.
        query_key_normalization: RMS normalisation of queries and keys by head, each with a learned scale `[K]`.
        dropout: fraction of the attention weights dropped in training.
        use_bias: whether the four projections add a bias.
        kernel_initializer: of the query `[D, H K]`, key and value `[D', H K]` matrices.
        output_initializer: of the output matrix, `[H K', D]`.
        seed: of the dropout.

    Call arguments:
        x: `[B, T, D]`, what asks. Its mask passes on to the output and changes nothing here.
        context: `[B, S, D']`, what answers. Not needed with a `state`.
        state: the context's keys, values and mask, from `project`.
        context_mask: `[B, S]`, true where the context is real; Keras passes the context's own mask. Where no position
            is real, y is zeros (plus the output bias).
        attention_mask: booleans, true where attending is allowed, `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may
            be 1); narrows the context mask.
        return_state: also return the state.
        return_attention_scores: also return the weights before dropout.

    Returns:
        y `[B, T, D]`, or a tuple `(y, scores [B, H, T, S], state)` with what was asked for, in this order.

    Raises:
        ValueError: for an argument out of its range, neither a context nor a state, a state or a context of another
            number of rows, a mask of another shape or of floats.
    """

    def build(self, x_shape, context_shape=None):
        """Makes the matrices for `x [B, T, D]` and `context [B, S, D']`."""
        if context_shape is None:
            raise ValueError("context=None; expected [B, S, D'] in the first call, for its width.")
        width = checks.sequence_shape("x", x_shape)
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: width})
        self.build_projections(width, checks.sequence_shape("context", context_shape))

    def project_context(self, context, context_mask=None):
        """The state: `{"key": [B, S, heads, K], "value": [B, S, heads, K'], "mask": [B, S]}`."""
        if not hasattr(self, "key_dense"):
            raise ValueError(f"{self.name} is not built; expected a call or `build(x_shape, context_shape)` first.")
        checks.real("context", context)
        context, real = checks.masked("context_mask", context, context_mask)
        k, v = self.project_key_value(context)
        real = ops.ones(ops.shape(context)[:2], "bool") if real is None else real
        return {"key": k, "value": v, "mask": real}

    def _state_shapes(self, batch_size, state):
        mask = shapes(state).get("mask") if isinstance(state, Mapping) else None
        size = mask[1] if isinstance(mask, list) and len(mask) == 2 else None
        return {
            "key": [batch_size, size, self._groups, self._key_dim],
            "value": [batch_size, size, self._groups, self._value_dim],
            "mask": [batch_size, size],
        }

    def call(
        self,
        x,
        context=None,
        state=None,
        context_mask=None,
        mask=None,
        attention_mask=None,
        training=None,
        return_state=False,
        return_attention_scores=False,
    ):
        """See the class."""
        checks.real("x", x)
        if state is None:
            if context is None:
                raise ValueError("context=None and state=None; expected one of them.")
            state = self.project_context(context, context_mask)
        else:
            if context is None and context_mask is not None:
                raise ValueError("context_mask was given with a state; expected it at `project`, whose state holds it.")
            check_state(self.name, state, self._state_shapes(x.shape[0], state))
            x = checks.with_axes_of(x, state["mask"], rank=1)
        x = checks.where_boolean(x, attention_mask)
        attention_mask = checks.attention_mask(
            "attention_mask", attention_mask, x.shape[0], self.num_heads, x.shape[1], state["mask"].shape[1]
        )
        allowed = ops.expand_dims(state["mask"], 1)  # [B, 1, S]
        if attention_mask is not None:
            allowed = ops.expand_dims(allowed, 1) if len(attention_mask.shape) == 4 else allowed
            allowed = ops.logical_and(allowed, attention_mask)
        y, scores = self.attend(self.project_query(x), state["key"], state["value"], allowed, None, training)
        outputs = (y, *((scores,) if return_attention_scores else ()), *((state,) if return_state else ()))
        return outputs if len(outputs) > 1 else y

    def compute_output_shape(self, x_shape, context_shape=None):
        """`[B, T, D]`, as x came."""
        return tuple(x_shape)
