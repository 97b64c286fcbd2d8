"""Share what TensorFlow's twins use: XLA programs on a CPU, loops in them, halves of a batch, resets of a state."""

import tensorflow as tf

from keras_seq.ops.dispatch import on_cpu

MIN_FUSED_ELEMENTS = 2**19  # numbers; below, starting an XLA program costs more than it saves
MIN_STEPS_X_UNITS = 4096  # T x units of a loop; below, compilation costs more than it saves
MAX_BF16_UNITS = 768  # in bfloat16; above either of these two, TensorFlow's own matmuls are faster than XLA's
MAX_BF16_STATE_SIZE = 2**14 - 1  # B x units
MIN_BATCH_TO_SPLIT = 8  # rows, for the XLA loops
MIN_STATE_SIZE_TO_SPLIT = 2**14  # rows x units, for unrolled steps: below, building two graphs costs more time


def is_large(x) -> bool:
    """Return whether x has a known and large number of elements, in a function that is being traced for a CPU."""
    size = x.shape.num_elements()
    return size is not None and size >= MIN_FUSED_ELEMENTS and not tf.executing_eagerly() and on_cpu()


def xla_loop_is_faster(z, state) -> bool:
    """Return whether an XLA loop over `z [B, T, W]` is faster than unrolled steps, in a function that is being traced.

    `state [B, units]` is the one that is kept in float32.
    """
    if tf.executing_eagerly() or not on_cpu() or state.dtype != tf.float32 or z.dtype == tf.float16:
        return False
    rows, units = state.shape
    fits = z.dtype == tf.float32 or (
        rows is not None and units <= MAX_BF16_UNITS and rows * units <= MAX_BF16_STATE_SIZE
    )
    return fits and z.shape[1] * units >= MIN_STEPS_X_UNITS


def reuse_as_tensor_array(rows):
    """Return a TensorArray that starts as `rows [T, B, W]`; an empty one is first filled with zeros."""
    return tf.TensorArray(rows.dtype, rows.shape[0], clear_after_read=False).unstack(rows)


def batch_halves(state, xla_loop):
    """Return slices of the batch of `state [B, units]`: two halves, to run in parallel, where that is faster, or one.

    There are two on every machine, so that the same seed gives the same bits everywhere.
    """
    rows, units = state.shape
    if rows is None or (rows < MIN_BATCH_TO_SPLIT if xla_loop else rows * units < MIN_STATE_SIZE_TO_SPLIT):
        return [slice(None)]
    return [slice(0, rows // 2), slice(rows // 2, rows)]


def concat_batch(tensors_of_halves):
    """Concatenate the results of the halves, a sequence of tensors `[..., rows, W]` each, along the batch axis."""
    if len(tensors_of_halves) == 1:
        return tensors_of_halves[0]
    return [tf.concat(tensors, axis=-2) for tensors in zip(*tensors_of_halves, strict=True)]


def to_time_major(x):
    """Transpose `[B, T, W]` to `[T, B, W]`, or back."""
    return tf.transpose(x, (1, 0, 2))


def reset_rows(state, reset_mask, t=...):
    """Return `state [..., units]` with zeros where row t, or all, of `reset_mask [T, B]` is true; None changes none."""
    return state if reset_mask is None else tf.where(reset_mask[t][..., None], tf.zeros_like(state), state)


def differentiable_vjp(vjp, reference, args):
    """Return a vector-Jacobian product that has derivatives of its own, which TensorFlow does not find in an XLA loop.

    `vjp` maps the gradients of the outputs to those of `args`. Where it is differentiated, what reverse mode makes of
    `reference` is differentiated instead, a function of `args` without XLA that computes the same outputs.
    """

    @tf.custom_gradient
    def product(*values):
        def gradient(*derivatives):
            with tf.GradientTape() as tape:
                tape.watch(values)
                gradients = _vjp(reference, values[: len(args)], values[len(args) :])
            return tape.gradient(gradients, values, output_gradients=derivatives, unconnected_gradients="zero")

        # stopped gradients hide the loop from eager gradient tapes
        return vjp(*map(tf.stop_gradient, values[len(args) :])), gradient

    return lambda *output_gradients: product(*args, *output_gradients)


def _vjp(function, args, output_gradients):
    with tf.GradientTape() as tape:
        tape.watch(args)
        outputs = function(*args)
    return tape.gradient(outputs, args, output_gradients=output_gradients, unconnected_gradients="zero")
