"""Plot the images of docs/transformer.md."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_seq.layers import TransformerBlock
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.models.counts import flops_per_token
from plots import COLORS, subplots

PLACEMENTS = {"pre-norm": True, "post-norm": False}


def gradient_and_stream_norms(norm_first, depth, width=32):
    """Return gradient norms of each block's last matrix and the stream's deviation after each, before training."""
    keras.utils.set_random_seed(0)
    layers = [TransformerBlock(4, 4 * width, causal=True, norm_first=norm_first) for _ in range(depth)]
    x, head = keras.random.normal((8, 16, width), seed=1), keras.random.normal((width, width), seed=2) / width**0.5
    y = keras.random.randint((8, 16), 0, width, seed=3)
    stream = [x]
    with tf.GradientTape() as tape:
        for layer in layers:
            stream.append(layer(stream[-1]))
        h = keras.layers.LayerNormalization()(stream[-1]) if norm_first else stream[-1]
        loss = ops.mean(ops.sparse_categorical_crossentropy(y, h @ head, from_logits=True))
    gradients = tape.gradient(loss, [layer.feed_forward_layer.output_dense.kernel.value for layer in layers])
    return [float(tf.norm(g)) for g in gradients], [float(ops.std(h)) for h in stream]


def plot_norms(depths=(2, 4, 8, 16)):
    """Plot gradient by block, last block's gradient by depth, and stream deviation, for pre-norm and post-norm."""
    figure, (blocks, last, stream) = subplots(3, height=2.5)
    for name, norm_first in PLACEMENTS.items():
        by_depth = {depth: gradient_and_stream_norms(norm_first, depth) for depth in depths}
        gradients, sizes = by_depth[depths[-1]]
        blocks.plot(range(1, len(gradients) + 1), gradients, marker=".", label=name)
        last.plot(depths, [by_depth[depth][0][-1] for depth in depths], marker="o", label=name)
        stream.plot(range(len(sizes)), sizes, marker=".", label=name)
    first = gradient_and_stream_norms(True, depths[0])[0][-1]
    last.plot(depths, [first * math.sqrt(depths[0] / depth) for depth in depths], "k:", label="1 / sqrt(blocks)")
    blocks.set(xlabel="block", title=f"gradient by block, {depths[-1]} blocks", ylim=(0, None))
    last.set(xlabel="blocks in the stack", title="gradient of the last block", xscale="log", yscale="log")
    last.set_xticks(depths, depths)
    last.minorticks_off()
    ticks = (0.1, 0.2, 0.5, 1.0)
    last.set_yticks(ticks, ticks)
    stream.set(xlabel="after block", title="deviation of the stream", ylim=(0, None))
    blocks.legend(fontsize=7)
    last.legend(fontsize=7)
    return figure


def plot_shapes():
    """Plot attention weights of one head in an encoder, a decoder, and a decoder of 6 over a source of 9."""
    x, source = keras.random.normal((1, 9, 16)), keras.random.normal((1, 9, 16))
    target = x[:, :6]
    encoder, decoder = TransformerBlock(2, 64), TransformerBlock(2, 64, causal=True)
    both = TransformerBlock(2, 64, causal=True, cross_attention=True)
    scores = both(target, context=source, return_attention_scores=True)[1]
    weights_by_name = {
        "encoder": encoder(x, return_attention_scores=True)[1]["self_attention"],
        "decoder": decoder(x, return_attention_scores=True)[1]["self_attention"],
        "target of a decoder": scores["self_attention"],
        "target to source": scores["cross_attention"],
    }
    figure, axes = subplots(4, width=8.4, height=2.5)
    for axis, (name, weights) in zip(axes, weights_by_name.items(), strict=True):
        weights = ops.convert_to_numpy(weights)[0, 0]
        axis.imshow(np.where(weights > 0, weights, np.nan), cmap="Blues", vmin=0, vmax=0.5)
        axis.set_facecolor("#eeeeee")
        axis.set(
            title=name,
            xlabel="key position",
            ylabel="query position",
            xticks=range(0, weights.shape[1], 2),
            yticks=range(0, len(weights), 2),
        )
        axis.title.set_fontsize(8)
        axis.grid(False)
    return figure


def plot_costs(lengths=(16, 64, 256, 1024, 4096, 16384)):
    """Plot operations per position and numbers in the state, by sequence length."""
    figure, (operations, state) = subplots(2)
    for color, (name, config) in zip(
        COLORS, {"LSTM of 408": LSTMConfig(), "Transformer 4 x 128": None}.items(), strict=False
    ):
        models = [
            (config or TransformerConfig(context_length=length)).build_model(65)
            for length in (lengths if config is None else lengths[:1])
        ]
        models = models * (len(lengths) // len(models))
        flops = [flops_per_token(model, length) for model, length in zip(models, lengths, strict=True)]
        sizes = [
            sum(math.prod(part.shape) for part in keras.tree.flatten(model.get_initial_state(1))) for model in models
        ]
        operations.loglog(lengths, flops, marker="o", color=color, label=name)
        state.loglog(lengths, sizes, marker="o", color=color, label=name)
    operations.set(xlabel="T, positions", title="operations per position, forward", ylim=(1e6, 1e8))
    state.set(xlabel="T, positions", title="numbers in the state after T positions")
    operations.legend()
    return figure


PLOTS = {"norms.svg": plot_norms, "shapes.png": plot_shapes, "costs.svg": plot_costs}
SLOW = ("norms.svg", "costs.svg")
