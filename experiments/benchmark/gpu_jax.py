"""Compile a training step with JAX, and many steps as one loop on the device.

    (state, x, y) -> (state, loss)        state: weights, other variables of the model (seeds), optimizer variables

Forward, backward, clipping and update are one compiled function. A loop of steps is another one: it does not return to
Python between two steps.
"""

import jax
import jax.numpy as jnp


def token_losses(logits, targets):
    """Compute the loss of every token in nats: `-log softmax(logits)[targets]`, float32 `[B, T]`.

    Args:
        logits: Logits `[B, T, V]`.
        targets: Ids `[B, T]`.
    """
    logits = logits.astype(jnp.float32)
    target_logits = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - target_logits


def training_state(model, optimizer):
    """Return the three lists of arrays that training changes.

    Args:
        model: A built model.
        optimizer: A built optimizer.
    """
    groups = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    return tuple([jnp.array(variable.value) for variable in group] for group in groups)


def training_step(model, optimizer):
    """Return the function of one training step, not yet compiled.

    Args:
        model: A built model.
        optimizer: A built optimizer.
    """

    def loss_fn(trainable, non_trainable, x, y):
        logits, non_trainable = model.stateless_call(trainable, non_trainable, x, training=True)
        return jnp.mean(token_losses(logits, y)), non_trainable

    def step(state, x, y):
        trainable, non_trainable, slots = state
        grad_fn = jax.value_and_grad(loss_fn, has_aux=True)
        (loss, non_trainable), gradients = grad_fn(trainable, non_trainable, x, y)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return (trainable, non_trainable, slots), loss

    return step


def compile_step_loop(model, optimizer, batch_fn):
    """Return a compiled function `(state, start_step, num_steps) -> (state, sum of the losses)`; it donates its state.

    Args:
        model: A built model.
        optimizer: A built optimizer.
        batch_fn: Traceable function from the number of a step to `(x, y)`.
    """
    step = training_step(model, optimizer)

    def run_steps(state, start_step, num_steps):
        def body(n, loop_state):
            state, total = loop_state
            state, loss = step(state, *batch_fn(start_step + n))
            return state, total + loss

        return jax.lax.fori_loop(0, num_steps, body, (state, jnp.float32(0)))

    return jax.jit(run_steps, donate_argnums=0)


def random_windows(ids, batch_size, sequence_length, key):
    """Draw `(x, y)`, `[B, T]` each: windows that start anywhere, as nanoGPT's get_batch; y is one token later.

    Args:
        ids: Ids of the text, `[N]`.
        batch_size: Number of windows B.
        sequence_length: Sequence length T, in tokens.
        key: Random key of the draw.
    """
    starts = jax.random.randint(key, (batch_size, 1), 0, len(ids) - sequence_length)
    windows = ids[starts + jnp.arange(sequence_length + 1)]
    return windows[:, :-1], windows[:, 1:]
