"""A training step as a function that JAX compiles, and many of them as one loop on the device.

    (state, x, y) -> (state, loss)        state: the weights, what else the model keeps (seeds), the optimizer's

Forward, backward, clipping and update are one compiled function. A loop of steps is one more: between two of its steps
nothing comes back to Python.
"""

import jax
import jax.numpy as jnp


def nats(logits, targets):
    """-log softmax(logits)[targets] at every position, float32 `[B, T]`."""
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def state_of(model, optimizer):
    """The three lists of arrays that training changes; the optimizer is built by now."""
    parts = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    return tuple([jnp.array(variable.value) for variable in part] for part in parts)


def training_step(model, optimizer):
    """The function of one step, not compiled yet."""

    def loss_of(trainable, rest, x, y):
        logits, rest = model.stateless_call(trainable, rest, x, training=True)
        return jnp.mean(nats(logits, y)), rest

    def step(state, x, y):
        trainable, rest, kept = state
        (loss, rest), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, rest, x, y)
        trainable, kept = optimizer.stateless_apply(kept, gradients, trainable)
        return (trainable, rest, kept), loss

    return step


def steps_in_a_loop(model, optimizer, batch_of):
    """A compiled function `(state, first, number) -> (state, the sum of the losses)`, which takes its state over.

    Args:
        model, optimizer: both built.
        batch_of: a function that JAX can trace, from the number of a step to `(x, y)`.
    """
    step = training_step(model, optimizer)

    def steps(state, first, number):
        def one(n, carry):
            state, total = carry
            state, loss = step(state, *batch_of(first + n))
            return state, total + loss

        return jax.lax.fori_loop(0, number, one, (state, jnp.float32(0)))

    return jax.jit(steps, donate_argnums=0)


def random_crops(ids, batch_size, length, key):
    """`(x, y)`, `[B, T]` each: crops that begin anywhere, y one character later, as nanoGPT's get_batch draws them."""
    starts = jax.random.randint(key, (batch_size, 1), 0, len(ids) - length)
    windows = ids[starts + jnp.arange(length + 1)]
    return windows[:, :-1], windows[:, 1:]
