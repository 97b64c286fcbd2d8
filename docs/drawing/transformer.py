"""The pictures of docs/transformer.md: both placements of the normalisation, the three shapes, what length costs."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from drawing import COLOURS, panes
from keras_seq.layers import TransformerBlock
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.models.flops import flops_per_token

PLACEMENTS = {"pre-norm": True, "post-norm": False}


def measured(norm_first, depth, width=32):
    """Of a fresh stack of blocks: the gradient's norm by each block's last matrix, and the stream's size after each."""
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


def norms(depths=(2, 4, 8, 16)):
    """Gradient by block, gradient of the last block by depth, size of the stream; both placements."""
    figure, (blocks, last, stream) = panes(3, height=2.5)
    for name, norm_first in PLACEMENTS.items():
        by_depth = {depth: measured(norm_first, depth) for depth in depths}
        gradients, sizes = by_depth[depths[-1]]
        blocks.plot(range(1, len(gradients) + 1), gradients, marker=".", label=name)
        last.plot(depths, [by_depth[depth][0][-1] for depth in depths], marker="o", label=name)
        stream.plot(range(len(sizes)), sizes, marker=".", label=name)
    first = measured(True, depths[0])[0][-1]
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


def shapes():
    """The weights of one head: all see all; each sees those before; a target of 6 sees a source of 9."""
    x, source = keras.random.normal((1, 9, 16)), keras.random.normal((1, 9, 16))
    target = x[:, :6]
    encoder, decoder = TransformerBlock(2, 64), TransformerBlock(2, 64, causal=True)
    both = TransformerBlock(2, 64, causal=True, cross_attention=True)
    scores = both(target, context_length=source, return_attention_scores=True)[1]
    pictures = {
        "encoder": encoder(x, return_attention_scores=True)[1]["self_attention"],
        "decoder": decoder(x, return_attention_scores=True)[1]["self_attention"],
        "target of a decoder": scores["self_attention"],
        "target to source": scores["cross_attention"],
    }
    figure, axes = panes(4, width=8.4, height=2.5)
    for axis, (name, weights) in zip(axes, pictures.items(), strict=True):
        weights = ops.convert_to_numpy(weights)[0, 0]
        axis.imshow(np.where(weights > 0, weights, np.nan), cmap="Blues", vmin=0, vmax=0.5)
        axis.set_facecolor("#eeeeee")
        axis.set(
            title=name,
            xlabel="attended to",
            ylabel="position",
            xticks=range(0, weights.shape[1], 2),
            yticks=range(0, len(weights), 2),
        )
        axis.title.set_fontsize(8)
        axis.grid(False)
    return figure


def costs(lengths=(16, 64, 256, 1024, 4096, 16384)):
    """Operations of a position, and numbers in the state, by length."""
    figure, (operations, state) = panes(2)
    for colour, (name, definition) in zip(
        COLOURS, {"LSTM of 408": LSTMConfig(), "Transformer 4 x 128": None}.items(), strict=False
    ):
        models = [
            (definition or TransformerConfig(context_length=length)).build_model(65)
            for length in (lengths if definition is None else lengths[:1])
        ]
        models = models * (len(lengths) // len(models))
        flops = [flops_per_token(model, length) for model, length in zip(models, lengths, strict=True)]
        sizes = [
            sum(math.prod(part.shape) for part in keras.tree.flatten(model.get_initial_state(1))) for model in models
        ]
        operations.loglog(lengths, flops, marker="o", color=colour, label=name)
        state.loglog(lengths, sizes, marker="o", color=colour, label=name)
    operations.set(xlabel="T, positions", title="operations for a position, forward", ylim=(1e6, 1e8))
    state.set(xlabel="T, positions", title="numbers in the state after T positions")
    operations.legend()
    return figure


FIGURES = {"norms.svg": norms, "shapes.png": shapes, "costs.svg": costs}
SLOW = ("norms.svg", "costs.svg")
