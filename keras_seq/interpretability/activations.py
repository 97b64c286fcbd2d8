"""Record the calls of layers or edit their outputs, without changing the layers; run a model with outputs replaced.

    outputs    h_l [B, T, D]  of the embedding and of each block, in the order of the computation
    patching   h_l := mask * (h_l of another text) + (1 - mask) * h_l, and everything after it follows

    effect     1 - KL(p_source || p_patched) / KL(p_source || p)   of the predictions after the last token
               0: a patch changes nothing; 1: the model predicts what it does for the source text; below 0: it misleads

Meng et al. (2022), arXiv:2202.05262; Heimersheim & Nanda (2024), arXiv:2404.15255. It works for every block, whatever
is inside: attention, an LSTM, Mamba. Where a layer is called more than once, as a tied embedding, it is the first call.
"""

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Mapping

import keras
import numpy as np
from keras import ops

import keras_seq.ops
from keras_seq import checks
from keras_seq.generation.search import log_softmax
from keras_seq.layers import CrossAttention, MultiHeadSelfAttention
from keras_seq.layers.introspection import named_layers
from keras_seq.ops.tensor_checks import at_least_float32

KERAS_LAYERS = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)


@contextlib.contextmanager
def record_calls(layers: Iterable[keras.layers.Layer], method: str, scores: bool = False):
    """Yield a list that gets `(layer, args, kwargs, output)` of every call of a method of some layers.

    With `scores`, Keras's attention layers are asked for their attention weights, too.
    """
    calls = []

    def recording(layer, original):
        def call(*args, **kwargs):
            call_kwargs = kwargs | {"return_attention_scores": True} if scores else kwargs
            output = original(*args, **call_kwargs)
            calls.append((layer, args, kwargs, output))
            return output if call_kwargs == kwargs or kwargs.get("return_attention_scores") else output[0]

        return call

    with _replaced(layers, method, recording):
        yield calls


@contextlib.contextmanager
def edit_outputs(layers: Iterable[keras.layers.Layer], edit: Callable):
    """Replace the output of each layer's first call by `edit(layer, output)`; yield the set of the layers called."""
    called = set()

    def editing(layer, original):
        def call(*args, **kwargs):
            output = original(*args, **kwargs)
            if layer in called:
                return output
            called.add(layer)
            return edit(layer, output)

        return call

    with _replaced(layers, "call", editing):
        yield called


@contextlib.contextmanager
def _replaced(layers, method, replacement):
    """Replace a method of each layer by `replacement(layer, original)` inside a `with` block."""
    layers = list(layers)
    before = [{name: value for name, value in vars(layer).items() if name == method} for layer in layers]
    for layer in layers:
        original = getattr(layer, method)
        # not by setattr, so that Keras does not track it
        layer.__dict__[method] = functools.wraps(original)(replacement(layer, original))
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):  # a method of its own, such as a rematerialized `call`
            del layer.__dict__[method]
            layer.__dict__.update(own)


def ensure_built(model: keras.Model, x) -> None:
    """Call a model that is not built yet: a first call also traces its layers, and symbolic calls would be recorded."""
    if not model.built:
        model(x, training=False)


def attention_layers(model: keras.Model) -> dict[keras.Layer, str]:
    """Return the attention layers of a model that give their weights, and their names in it."""
    classes = (MultiHeadSelfAttention, CrossAttention, *KERAS_LAYERS)
    layers = {layer: name for name, layer in named_layers(model) if isinstance(layer, classes)}
    flash = {each for each in layers if isinstance(each, KERAS_LAYERS) and each.get_config().get("flash_attention")}
    return {layer: name for layer, name in layers.items() if layer not in flash}


def attention_weights(model: keras.Model, x) -> dict[str, np.ndarray]:
    """Return the weights `[B, H, T, S]` of every attention layer, float32, by its name in the model.

    Further calls of a layer are named `NAME/call_2`, `NAME/call_3`, ...; a layer that is not called has no entry.

    Args:
        model: Any Keras model with attention layers of keras_seq or keras.layers.
        x: A batch of its inputs.
    """
    names = attention_layers(model)
    if not names:
        return {}
    ensure_built(model, x)
    own_layers = [layer for layer in names if not isinstance(layer, KERAS_LAYERS)]
    keras_layers = [layer for layer in names if isinstance(layer, KERAS_LAYERS)]
    with (
        record_calls(own_layers, "attend") as own_calls,
        record_calls(keras_layers, "call", scores=True) as keras_calls,
        keras_seq.ops.reference(),  # the optimized kernels do not return attention weights
    ):
        model(x, training=False)
    weights = {}
    for layer, name in names.items():
        calls = [scores for called, _, _, (_, scores) in own_calls + keras_calls if called is layer]
        for n, scores in enumerate(calls, start=1):
            key = name if n == 1 else f"{name}/call_{n}"
            weights[key] = ops.convert_to_numpy(ops.cast(scores, "float32"))
    return weights


# Outputs of layers, and activation patching.

BATCH_SIZE = 32  # positions patched in one forward pass, each in a row of its own


def inspected_layers(model: keras.Model, layers: Collection[str] | None = None) -> dict[str, keras.layers.Layer]:
    """Return the layers whose outputs are read or replaced, by name."""
    if layers is None:
        if not (hasattr(model, "embedding") and hasattr(model, "blocks")):
            raise ValueError(f"layers=None; expected names of layers of {model.name}, which is not a LanguageModel.")
        blocks = [block for block in model.blocks if not isinstance(block, keras.layers.Dropout)]
        return {layer.name: layer for layer in (model.embedding, *blocks)}
    if isinstance(layers, str):
        raise ValueError(f"layers={layers!r}; expected a list of names.")
    known = {}
    for name, layer in named_layers(model):
        known.setdefault(name, layer)  # a block comes before its attention layer, which has the same path
    del known[""]
    unknown = [name for name in layers if name not in known]
    if unknown:
        raise ValueError(f"{model.name} has no layer {unknown[0]!r}; expected one of {', '.join(known)}.")
    return {name: known[name] for name in layers}


def layer_outputs(model: keras.Model, ids, layers: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Return the outputs of layers, in the order of their calls.

    ```python
    outputs = layer_outputs(model, tokenizer.encode("To be")[None])  # {"embedding": [1, 5, D], "lstm_0": ...}
    ```

    Args:
        model: A `LanguageModel`, or any Keras model if `layers` is given.
        ids: Its input, `[B, T]`.
        layers: Names of layers; None for the embedding and the blocks of a `LanguageModel`.

    Returns:
        Arrays `[B, T, D]`, at least float32, by name.

    Raises:
        ValueError: A layer does not exist, or is not called.
    """
    outputs = {}

    def record(name, output):
        outputs[name] = to_numpy(output)
        return output

    _run(model, ids, inspected_layers(model, layers), record)
    return outputs


def patched_logits(
    model: keras.Model,
    ids,
    source_ids,
    layers: Collection[str] | None = None,
    mask=None,
) -> np.ndarray:
    """Return the logits of a text while layers put out what they do for another text.

    ```python
    logits = patched_logits(model, ids, source_ids, ["block_1"], mask=np.arange(T) == 3)
    ```

    Args:
        model: A `LanguageModel`, or any Keras model if `layers` is given.
        ids: The text, `[B, T]`.
        source_ids: The other text, of the same shape, or of one row for all rows of `ids`.
        layers: Names of the layers to patch; None for the embedding and all blocks of a `LanguageModel`.
        mask: Bool, of a shape that broadcasts to `[B, T]`, true at the positions to patch; None for all.

    Returns:
        The model's outputs, `[B, T, V]`, at least float32.

    Raises:
        ValueError: The shapes do not match, a layer does not exist or is not called, or the mask is no mask.
    """
    ids, source_ids = np.asarray(ids), np.asarray(source_ids)
    if ids.ndim != 2 or source_ids.shape not in (ids.shape, (1, *ids.shape[1:])):
        raise ValueError(f"source_ids has shape {source_ids.shape}; expected that of ids, {ids.shape}.")
    return logits_given(model, ids, layer_outputs(model, source_ids, layers), mask)


def logits_given(model: keras.Model, ids, outputs: Mapping[str, np.ndarray], mask=None) -> np.ndarray:
    """Return the logits of a text while some layers put out given arrays."""
    mask, shape = np.array(True if mask is None else mask), np.shape(ids)
    fits = mask.ndim <= len(shape) and all(
        n in (1, size) for n, size in zip(mask.shape[::-1], shape[::-1], strict=False)
    )
    if not fits or not np.isin(mask, (0, 1)).all():
        expected = f"booleans of a shape that broadcasts to that of ids, {shape}"
        raise ValueError(f"mask: {checks.short_repr(mask)} of shape {mask.shape}; expected {expected}.")
    mask = np.broadcast_to(mask.astype(bool), shape)[..., None]

    def replace(name, output):
        if outputs[name].shape[-1] != output.shape[-1]:
            raise ValueError(f"{outputs[name].shape} for {name!r}; expected a width of {output.shape[-1]}.")
        return ops.where(mask, ops.cast(outputs[name], output.dtype), output)

    layers = inspected_layers(model, outputs)
    # the optimized gather of a recurrent layer's projected inputs skips the embedding's output
    edits_embedding = getattr(model, "embedding", None) in layers.values()
    with keras_seq.ops.reference() if edits_embedding else contextlib.nullcontext():
        return _run(model, ids, layers, replace)


def patched_state_logits(model, prefix, source_prefix, ids, layers: Collection[str] | None = None) -> np.ndarray:
    """Return the logits of a text that follows one prefix while blocks remember another.

    The state of a block is a value, of an LSTM as of attention: here it comes from `source_prefix`, for the blocks that
    are named, and from `prefix` for the others.

    Args:
        model: A `LanguageModel`.
        prefix: Ids before the text, `[B, P]`.
        source_prefix: Other ids before it, `[B, P]`; of another length only if the states of all blocks are replaced.
        ids: The text, `[B, T]`.
        layers: Names of the blocks whose state is replaced; None for all.

    Returns:
        Logits `[B, T, V]`, at least float32.

    Raises:
        ValueError: A block does not exist or keeps no state, or prefixes differ in length.
    """
    names = [block.name for block in model.blocks if hasattr(block, "get_initial_state")]
    for name in layers or ():
        checks.one_of("layers", name, names)
    if layers is not None and np.shape(prefix) != np.shape(source_prefix):
        raise ValueError(f"source_prefix has shape {np.shape(source_prefix)}; expected {np.shape(prefix)}.")
    state, source = (model(x, training=False, return_state=True)[1] for x in (prefix, source_prefix))
    rows = zip(names, state, source, strict=True)
    state = tuple(theirs if layers is None or name in layers else own for name, own, theirs in rows)
    return to_numpy(model(ids, state=state, training=False))


def _run(model, ids, layers, edit):
    """Run the model with the outputs of layers edited; return its outputs."""
    names = {layer: name for name, layer in layers.items()}
    with edit_outputs(names, lambda layer, output: edit(names[layer], output)) as called:
        logits = model(ids, training=False)
    missing = [name for layer, name in names.items() if layer not in called]
    if missing:
        raise ValueError(f"{model.name} does not call {missing[0]!r} for its outputs; expected layers that it does.")
    return to_numpy(logits)


def to_numpy(x) -> np.ndarray:
    """Return a tensor as an array, float32 or wider."""
    return ops.convert_to_numpy(ops.cast(x, at_least_float32(x.dtype)))


def patching_effects(
    model: keras.Model, ids, source_ids, layers: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Return the effect of each layer at each position on the prediction after the last token.

    One layer is patched at one position at a time. The two texts are best alike but for a few tokens.

    ```python
    effects = patching_effects(model, tokenizer.encode("a cat"), tokenizer.encode("a dog"))
    ```

    Args:
        model: A `LanguageModel`, or any Keras model if `layers` is given.
        ids: The text, `[T]`.
        source_ids: Another text of the same length, `[T]`.
        layers: Names of layers; None for the embedding and the blocks of a `LanguageModel`.

    Returns:
        `[T]` by the name of the layer, in the order of the computation.

    Raises:
        ValueError: The texts have not the same length or make the same prediction, or a layer does not exist.
    """
    ids, source_ids = np.asarray(ids), np.asarray(source_ids)
    if ids.ndim != 1 or ids.shape != source_ids.shape:
        raise ValueError(f"The texts have {ids.size} and {source_ids.size} tokens; expected two of the same length.")
    log_p, log_p_source = log_softmax(to_numpy(model(np.stack([ids, source_ids]), training=False))[:, -1])
    distance = _divergence(log_p_source, log_p)
    if not distance > 1e-9:
        raise ValueError("The model predicts the same after both texts; expected texts after which it does not.")
    masks = np.eye(len(ids), dtype=bool)
    effects = {}
    for name in inspected_layers(model, layers):
        parts = []
        for mask in np.split(masks, range(BATCH_SIZE, len(ids), BATCH_SIZE)):
            rows = np.broadcast_to(ids, mask.shape)
            logits = patched_logits(model, rows, source_ids[None], [name], mask)[:, -1]
            parts.append(1 - _divergence(log_p_source, log_softmax(logits)) / distance)
        effects[name] = np.concatenate(parts)
    return effects


def _divergence(log_p, log_q):
    return np.sum(np.exp(log_p) * (log_p - log_q), axis=-1)
