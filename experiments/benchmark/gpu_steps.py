"""Run the JAX implementations of `experiments.benchmark.gpu` as a worker process, or describe the device.

Started by `experiments.benchmark.gpu_workers`. JAX returns before the device has finished, so a timed run waits for its last
step. keras_seq runs in the loop of `gpu_jax`, keras.layers in `model.fit`.
"""

import json
import resource
import sys
import time

import jax
import jax.numpy as jnp
import keras
import numpy as np

from experiments.benchmark import gpu_jax, gpu_models
from experiments.benchmark.cases import Case
from keras_seq.layers.attention import causal_attention
from keras_seq.models.flops import flops_per_token


def keras_seq_step(case: Case, x, y):
    """Prepare training steps of keras_seq.

    Args:
        case: The case to run.
        x: Ids `[B, T]`.
        y: Targets `[B, T]`.

    Returns:
        A function that runs a given number of steps, and the info on the model for the report.
    """
    model, optimizer = gpu_models.keras_seq_model(case), gpu_models.case_optimizer()
    optimizer.build(model.trainable_variables)
    state = gpu_jax.training_state(model, optimizer)
    batch = jnp.asarray(x), jnp.asarray(y)
    step_loop = gpu_jax.compile_step_loop(model, optimizer, lambda step: batch)

    def run_steps(num_steps):
        nonlocal state
        state, total = step_loop(state, 0, num_steps)
        jax.block_until_ready((state, total))

    flops = flops_per_token(model, case.sequence_length, training=True)
    return run_steps, {"parameters": model.count_params(), "flops_per_token": flops}


def keras_step(case: Case, x, y):
    """Prepare training steps of keras.layers.

    Args:
        case: The case to run.
        x: Ids `[B, T]`.
        y: Targets `[B, T]`.

    Returns:
        A function that runs a given number of steps, and the info on the model for the report. `fit` reads the last
        loss, so it waits for the device.
    """
    model = gpu_models.keras_reference_model(case)

    def batches():
        while True:
            yield x, y

    def run_steps(num_steps):
        model.fit(batches(), steps_per_epoch=num_steps, epochs=1, shuffle=False, verbose=0)

    return run_steps, {"parameters": model.count_params()}


def _keras_attention(q, k, v):
    return keras.ops.dot_product_attention(q, k, v, is_causal=True)


def attention_step(case: Case, implementation):
    """Prepare forward and backward passes of causal attention alone.

    Args:
        case: The case to run.
        implementation: `"keras_seq"` or `"keras"`.

    Returns:
        A function that runs a given number of steps, and the info for the report.
    """
    shape = (case.batch_size, case.sequence_length, case.num_heads, case.embedding_dim // case.num_heads)
    q, k, v = (jax.random.normal(key, shape, case.precision) for key in jax.random.split(jax.random.key(0), 3))
    function = {"keras_seq": causal_attention, "keras": _keras_attention}[implementation]

    def total(q, k, v):
        return jnp.sum(jnp.square(function(q, k, v).astype(jnp.float32)))

    step = jax.jit(jax.grad(total, argnums=(0, 1, 2)))

    def run_steps(num_steps):
        for _ in range(num_steps):
            gradients = step(q, k, v)
        return jax.block_until_ready(gradients)

    # Scores and values, once forward and twice backward; causal attention needs half of the T x T pairs.
    return run_steps, {"flops_per_token": 3 * 4 * case.sequence_length * case.embedding_dim // 2}


def peak_megabytes() -> float:
    """Return the peak memory in MB: of the device where it reports it, or of the process."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def matmul_flops(dtype: str, size: int) -> float:
    """Measure the FLOP/s of a square matrix product: the best of 5 series.

    Args:
        dtype: Dtype of the matrices.
        size: Rows and columns of the matrices.
    """
    a, b = (jax.random.normal(key, (size, size), dtype) for key in jax.random.split(jax.random.key(0)))
    product = jax.jit(jnp.matmul)
    product(a, b).block_until_ready()
    speeds = []
    for _ in range(5):
        start_time = time.perf_counter()
        for _ in range(10):
            last = product(a, b)
        last.block_until_ready()
        speeds.append(10 * 2 * size**3 / (time.perf_counter() - start_time))
    return max(speeds)


def device(sizes) -> dict:
    """Describe the device that JAX runs on, and measure its matmul peak.

    Args:
        sizes: Rows and columns of the matrices, by the platform; `"other"` for platforms not named.
    """
    first_device = jax.local_devices()[0]
    size = sizes.get(first_device.platform, sizes["other"])
    return {
        "platform": first_device.platform,
        "kind": first_device.device_kind,
        "versions": {"python": sys.version.split()[0], "jax": jax.__version__, "keras": keras.__version__},
        "matmul_flops": {dtype: matmul_flops(dtype, size) for dtype in ("float32", "bfloat16")},
    }


def main():
    """Describe the device; or warm up, then time a run for each line on stdin."""
    request = json.loads(sys.argv[1])
    if "device" in request:
        print(json.dumps(device(request["device"])), flush=True)
        return
    implementation, seconds = request.pop("implementation"), request.pop("seconds")
    case = Case(**request)
    if case.kind == "attention":
        run_steps, info = attention_step(case, implementation)
    else:
        shape = (2, case.batch_size, case.sequence_length)
        batch = np.random.default_rng(0).integers(case.vocabulary_size, size=shape)
        prepare = {"keras_seq": keras_seq_step, "keras": keras_step}[implementation]
        run_steps, info = prepare(case, *batch.astype("int32"))
    run_steps(1)
    num_steps = 1
    while True:  # until the run is long enough that starting and ending it do not matter
        start_time = time.perf_counter()
        run_steps(num_steps)
        duration = time.perf_counter() - start_time
        if duration >= 0.2 * seconds:
            break
        num_steps *= 2
    num_steps = max(1, round(num_steps * seconds / duration))
    run_steps(num_steps)
    print(json.dumps(info), flush=True)
    for _ in sys.stdin:
        start_time = time.perf_counter()
        run_steps(num_steps)
        speed = num_steps * case.batch_size * case.sequence_length / (time.perf_counter() - start_time)
        print(json.dumps({"tokens_per_second": speed, "peak_megabytes": peak_megabytes()}), flush=True)


if __name__ == "__main__":
    main()
