"""Cross-attention: queries from one sequence, keys and values from another (Bahdanau et al., 2015).

    q = x W_Q,   k, v = context W_K, context W_V,   y = softmax(q kᵀ / sqrt(K)) v W_O

While decoding, the context stays the same: its keys and values are computed once and are the state.
"""

from collections.abc import Mapping

import keras
from keras import ops

from keras_seq.layers.attention.multi_head_attention import MultiHeadAttentionBase
from keras_seq.layers.base.state import check_state, nan_where_attended, shapes, with_nan
from keras_seq.ops import tensor_checks
from keras_seq.ops.tensor_checks import where_valid


@keras.saving.register_keras_serializable(package="keras_seq")
class CrossAttention(MultiHeadAttentionBase):
    """Multi-head attention from one sequence to another.

    ```python
    layer = CrossAttention(num_heads=4)
    y = layer(x, context=encoded, context_mask=encoded_mask)  # x [B, T, D], encoded [B, S, D'] -> y [B, T, D]

    state = layer.project_context(encoded, context_mask=encoded_mask)  # once
    y = layer(x[:, :1], state=state)  # equals layer(x, context=encoded, context_mask=encoded_mask)[:, :1]
    ```

    Args:
        num_heads, key_dim, value_dim, num_key_value_heads: As for `MultiHeadSelfAttention`.
        use_qk_norm, qk_normalization, epsilon, dropout, seed, scale, use_bias, output_bias: As there.
        kernel_initializer: Initializer of the query `[D, H K]`, key and value `[D', H K]` matrices.
        output_initializer: Initializer of the output matrix, `[H K', D]`.
        **kwargs: Those of `keras.layers.Layer`.

    Call arguments:
        inputs: `[B, T, D]`, source of the queries.
        context: `[B, S, D']`, source of keys and values. Not needed with a `state`.
        state: The context's keys, values and mask, from `project_context`.
        mask: `[B, T]`, true at non-padding positions of the inputs; padding counts as zeros. It is passed on.
        inputs_mask: What Keras passes for `mask`.
        context_mask: `[B, S]`, true at non-padding positions of the context; Keras passes the context's own mask. Where
            all positions are padding, y is zeros (plus the output bias).
        attention_mask: Booleans, true where attending is allowed, `[T, S]`, `[B, T, S]` or `[B, H, T, S]` (any axis may
            be 1), combined with the context mask.
        return_state: Whether to return the state too.
        return_attention_scores: Whether to return the attention weights (before dropout) too.

    Returns:
        y `[B, T, D]`, or a tuple `(y, scores [B, H, T, S], state)` of y and the requested outputs, in this order.

    Raises:
        ValueError: If an argument is out of its range, neither a context nor a state is passed, either has another
            batch size, or a mask has another shape or is a float mask.
    """

    def build(self, inputs_shape, context_shape=None):
        """Create the weights for inputs `[B, T, D]` and a context `[B, S, D']`."""
        if context_shape is None:
            raise ValueError("context=None; expected [B, S, D'] in the first call, to read its width D'.")
        width = self._read_width(inputs_shape)
        self.build_projections(width, tensor_checks.sequence_shape("context", context_shape))

    def project_context(self, context, context_mask=None):
        """Compute the state from the context.

        Args:
            context: `[B, S, D']`.
            context_mask: `[B, S]`, true at non-padding positions, or None.

        Returns:
            `{"key": [B, S, G, K], "value": [B, S, G, K'], "mask": [B, S]}`, G the number of key and value heads.

        Raises:
            ValueError: If the layer is not built, or the mask does not match the context.
        """
        if not hasattr(self, "key_dense"):
            raise ValueError(
                f"{self.name} is not built; expected a call or `build(inputs_shape, context_shape)` first."
            )
        context = tensor_checks.real("context", context, self.compute_dtype)
        context, is_valid = tensor_checks.masked("context_mask", context, context_mask)
        k, v = self.project_key_value(where_valid(is_valid, context))
        is_valid = ops.ones(ops.shape(context)[:2], "bool") if is_valid is None else is_valid
        return {"key": k, "value": v, "mask": is_valid}

    def _state_shapes(self, batch_size, state):
        mask = shapes(state).get("mask") if isinstance(state, Mapping) else None
        size = mask[1] if isinstance(mask, list) and len(mask) == 2 else None
        return {
            "key": [batch_size, size, self._num_kv_heads, self._key_dim],
            "value": [batch_size, size, self._num_kv_heads, self._value_dim],
            "mask": [batch_size, size],
        }

    def call(
        self,
        inputs,
        context=None,
        state=None,
        context_mask=None,
        mask=None,
        attention_mask=None,
        training: bool | None = None,
        return_state: bool = False,
        return_attention_scores: bool = False,
        inputs_mask=None,
    ):
        """Apply cross-attention; the arguments are documented in the class."""
        x, mask = self._valid_inputs(inputs, inputs_mask if mask is None else mask)
        if state is None:
            if context is None:
                raise ValueError("context=None and state=None; expected one of them.")
            state = self.project_context(context, context_mask)
        else:
            if context is None and context_mask is not None:
                raise ValueError(
                    "context_mask was passed with a state; expected it in `project_context`, which creates the state."
                )
            check_state(self.name, state, self._state_shapes(x.shape[0], state))
            x = tensor_checks.with_axes_of(x, state["mask"], rank=1)
        x = tensor_checks.where_boolean(x, attention_mask)
        attention_mask = tensor_checks.attention_mask(
            "attention_mask", attention_mask, x.shape[0], self.num_heads, x.shape[1], state["mask"].shape[1]
        )
        allowed = ops.expand_dims(state["mask"], 1)  # [B, 1, S]
        if attention_mask is not None:
            allowed = ops.expand_dims(allowed, 1) if len(attention_mask.shape) == 4 else allowed
            allowed = ops.logical_and(allowed, attention_mask)
        q, k, v = self.project_query(x), state["key"], state["value"]
        if attention_mask is not None:  # a weight of 0 times NaN is NaN
            is_nan = ops.isnan(k[:, :, 0, 0])
            k, v = (where_valid(ops.logical_not(is_nan), one) for one in (k, v))
        y, scores = self.attend(q, k, v, allowed, None, training, return_attention_scores)
        if attention_mask is not None:
            y, _ = with_nan(nan_where_attended(is_nan, allowed), y)
        outputs = (y, *((scores,) if return_attention_scores else ()), *((state,) if return_state else ()))
        return outputs if len(outputs) > 1 else y

    def compute_output_shape(self, inputs_shape, context_shape=None) -> tuple:
        """Return the shape of the inputs, `[B, T, D]`."""
        return tuple(inputs_shape)
