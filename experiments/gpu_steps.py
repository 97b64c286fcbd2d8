"""Ours and Keras's side of the rows of `experiments.gpu`, on JAX; and what device there is.

Started by `experiments.gpu_turns`. JAX returns before the device is done: a counted run waits for its last step.
Ours is the loop of `gpu_jax`, the other side `model.fit` as it comes.
"""

import json
import resource
import sys
import time

import jax
import jax.numpy as jnp
import keras
import numpy as np

from experiments import gpu_jax, gpu_models
from experiments.benchmark_rows import Row
from keras_seq.layers.attention import causal_attention
from keras_seq.models.flops import flops_per_token


def our_step(row: Row, x, y):
    """A function from a number of steps that does them, and what there is to say about it."""
    model, optimizer = gpu_models.ours(row), gpu_models.row_optimizer()
    optimizer.build(model.trainable_variables)
    state = gpu_jax.state_of(model, optimizer)
    batch = jnp.asarray(x), jnp.asarray(y)
    loop = gpu_jax.steps_in_a_loop(model, optimizer, lambda step: batch)

    def steps(number):
        nonlocal state
        state, total = loop(state, 0, number)
        jax.block_until_ready((state, total))

    per_token = flops_per_token(model, row.length, training=True)
    return steps, {"parameters": model.count_params(), "flops_per_token": per_token}


def keras_step(row: Row, x, y):
    """The same of keras.layers; `fit` ends with the last loss as a number, so it has waited."""
    model = gpu_models.keras_as_it_comes(row)

    def batches():
        while True:
            yield x, y

    def steps(number):
        model.fit(batches(), steps_per_epoch=number, epochs=1, shuffle=False, verbose=0)

    return steps, {"parameters": model.count_params()}


def _keras_attention(q, k, v):
    return keras.ops.dot_product_attention(q, k, v, is_causal=True)


def attention_step(row: Row, by):
    """The same for causal attention alone."""
    shape = (row.batch_size, row.length, row.num_heads, row.embedding_dim // row.num_heads)
    q, k, v = (jax.random.normal(key, shape, row.precision) for key in jax.random.split(jax.random.key(0), 3))
    function = {"ours": causal_attention, "keras": _keras_attention}[by]

    def total(q, k, v):
        return jnp.sum(jnp.square(function(q, k, v).astype(jnp.float32)))

    step = jax.jit(jax.grad(total, argnums=(0, 1, 2)))

    def steps(number):
        for _ in range(number):
            gradients = step(q, k, v)
        return jax.block_until_ready(gradients)

    # Scores and values, forward once and backward twice; of the T x T pairs a causal one needs half.
    return steps, {"flops_per_token": 3 * 4 * row.length * row.embedding_dim // 2}


def peak_megabytes() -> float:
    """The most memory that was in use: of the device where it tells it, else of the process."""
    told = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in told:
        return told["peak_bytes_in_use"] / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def matmul_flops(dtype, size) -> float:
    """FLOP/s of a square matrix product, the best of 5 series."""
    a, b = (jax.random.normal(key, (size, size), dtype) for key in jax.random.split(jax.random.key(0)))
    product = jax.jit(jnp.matmul)
    product(a, b).block_until_ready()
    speeds = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(10):
            last = product(a, b)
        last.block_until_ready()
        speeds.append(10 * 2 * size**3 / (time.perf_counter() - begun))
    return max(speeds)


def device(sizes) -> dict:
    """What JAX runs on, and how fast it multiplies matrices.

    Args:
        sizes: of the matrices, by the platform; `"other"` for those not named.
    """
    first = jax.local_devices()[0]
    size = sizes.get(first.platform, sizes["other"])
    return {
        "platform": first.platform,
        "kind": first.device_kind,
        "versions": {"python": sys.version.split()[0], "jax": jax.__version__, "keras": keras.__version__},
        "matmul_flops": {dtype: matmul_flops(dtype, size) for dtype in ("float32", "bfloat16")},
    }


def main():
    """Tells the device; or warms up, then counts when told to."""
    given = json.loads(sys.argv[1])
    if "device" in given:
        print(json.dumps(device(given["device"])), flush=True)
        return
    by, seconds = given.pop("by"), given.pop("seconds")
    row = Row(**given)
    if row.kind == "attention":
        steps, about = attention_step(row, by)
    else:
        batch = np.random.default_rng(0).integers(row.vocabulary_size, size=(2, row.batch_size, row.length))
        steps, about = {"ours": our_step, "keras": keras_step}[by](row, *batch.astype("int32"))
    steps(1)
    number = 1
    while True:  # until a run is long enough to be counted by: a short one is mostly its beginning and end
        begun = time.perf_counter()
        steps(number)
        took = time.perf_counter() - begun
        if took >= 0.2 * seconds:
            break
        number *= 2
    number = max(1, round(number * seconds / took))
    steps(number)
    print(json.dumps(about), flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        steps(number)
        speed = number * row.batch_size * row.length / (time.perf_counter() - begun)
        print(json.dumps({"tokens_per_second": speed, "peak_megabytes": peak_megabytes()}), flush=True)


if __name__ == "__main__":
    main()
