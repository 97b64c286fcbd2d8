"""Second derivatives of XLA loops, which TensorFlow cannot differentiate: those of a reference without XLA.

A loop computes the first derivatives, dy' J(x), and is not looked into. Where they are differentiated themselves, what
reverse mode makes of the reference is differentiated instead.
"""

import tensorflow as tf


def differentiable_vjp(vjp, reference, args):
    """Return a vector-Jacobian product that has derivatives of its own.

    Args:
        vjp: Maps the gradients of the outputs to those of `args`; it is not differentiated.
        reference: A differentiable function that computes the same outputs from `args`.
        args: Tensors.

    Returns:
        A function of the gradients of the outputs, which returns those of `args`.
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
