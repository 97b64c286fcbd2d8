"""Metrics, predictions and attention of an encoder for masked language modeling.

loss = mean over the masked positions of -log softmax(logits)[target]
"""

import keras
import numpy as np
import tensorflow as tf

from experiments.masked_lm import report as masked_lm_report
from keras_seq.data import MaskedLMMaskGenerator
from keras_seq.evaluation.progress_bar import track_progress
from keras_seq.layers import TransformerBlock
from keras_seq.tokenizers import SPECIAL_TOKENS, WordPieceTokenizer
from keras_seq.tokenizers.segment_packing import pack_segments
from keras_seq.tracking import Summaries

MASK = "[MASK]"
TOP = 5  # of top-5 accuracy


def mask_generator(tokenizer: WordPieceTokenizer, mask_rate: float, seed: int) -> MaskedLMMaskGenerator:
    """Return a generator that masks a fraction of the tokens that are not special.

    Args:
        tokenizer: Tokenizer of the ids.
        mask_rate: Probability that a token is masked.
        seed: Random seed of the masks.
    """
    return MaskedLMMaskGenerator(
        SPECIAL_TOKENS[MASK], tokenizer.vocabulary_size, tuple(SPECIAL_TOKENS.values()), mask_rate, seed
    )


def segment_pairs(ids, length: int, stride: int, seed: int) -> dict[str, np.ndarray]:
    """Cut a text into rows `[CLS] a [SEP] b [SEP]`, where b continues a.

    Args:
        ids: Ids of the text, `[N]`.
        length: T, the ids in a row.
        stride: Distance between the starts of two rows, in ids; rows overlap if it is less than T - 3.
        seed: Random seed of the lengths of a, uniform from 1 to T - 4.
    """
    num_ids = length - 3
    starts = range(0, len(ids) - num_ids + 1, stride)
    middles = np.random.default_rng(seed).integers(1, num_ids, size=len(starts))
    firsts = [ids[start : start + middle] for start, middle in zip(starts, middles, strict=True)]
    seconds = [ids[start + middle : start + num_ids] for start, middle in zip(starts, middles, strict=True)]
    rows = pack_segments(firsts, seconds, length)
    return {name: rows[name] for name in ("token_ids", "segment_ids")}


def unigram_baseline(train_ids, targets, vocabulary_size: int) -> dict[str, float]:
    """Score a prediction by the unigram frequencies of the tokens, with add-one smoothing.

    Args:
        train_ids: Ids that are counted, `[N]`.
        targets: Ids at the masked positions, `[M]`.
        vocabulary_size: V.
    """
    counts = np.bincount(train_ids, minlength=vocabulary_size) + 1
    counts[list(SPECIAL_TOKENS.values())] = 0  # never masked
    order = np.argsort(-counts, kind="stable")
    return {
        "val_loss": float(-np.log(counts[targets] / counts.sum()).mean()),
        "accuracy": float(np.mean(targets == order[0])),
        "top5_accuracy": float(np.isin(targets, order[:TOP]).mean()),
    }


def attention_scores(model: keras.Model, inputs) -> np.ndarray:
    """Compute the attention weights of every block: `[blocks, B, H, T, T]`.

    Args:
        model: A functional model with `TransformerBlock`s, such as a BERT encoder with or without a head.
        inputs: Inputs of the model.
    """
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    block_inputs = keras.Model(model.input, [block.input for block in blocks])(inputs)  # with their masks
    scores = [block(x, return_attention_scores=True)[1] for block, x in zip(blocks, block_inputs, strict=True)]
    return np.stack([keras.ops.convert_to_numpy(keras.ops.cast(s["self_attention"], "float32")) for s in scores])


class MaskFiller:
    """Predict the masked tokens of a text.

    Args:
        model: Model from packed token and segment ids to logits.
        tokenizer: Its tokenizer.
    """

    def __init__(self, model: keras.Model, tokenizer: WordPieceTokenizer):
        self.model, self.tokenizer = model, tokenizer
        self.context_length = model.get_layer("token_id_check").context_length

    def row(self, text: str) -> dict[str, np.ndarray]:
        """Encode a text as token and segment ids `[1, T]`.

        The tokenizer does not treat [MASK] as special, so its id is inserted here.

        Raises:
            ValueError: The text has no [MASK], or is too long.
        """
        check_text(text, self.tokenizer, self.context_length)
        rows = pack_segments([ids_with_mask(text, self.tokenizer)], None, None)
        return {name: rows[name] for name in ("token_ids", "segment_ids")}

    def __call__(self, text: str, top: int = TOP) -> list[list[tuple[str, float]]]:
        """Return the most likely tokens and their probabilities, for each [MASK].

        Args:
            text: Text with [MASK].
            top: Number of predictions for each.
        """
        row = self.row(text)
        (logits,) = keras.ops.convert_to_numpy(self.model(row, training=False)).astype("float64")
        vocabulary, predictions = self.tokenizer.vocabulary, []
        for position in np.flatnonzero(row["token_ids"][0] == SPECIAL_TOKENS[MASK]):
            probabilities = np.exp(logits[position] - np.logaddexp.reduce(logits[position]))
            likeliest = np.argsort(-probabilities)[:top]
            predictions.append([(vocabulary[n], float(probabilities[n])) for n in likeliest])
        return predictions

    def format_predictions(self, text: str, top: int = TOP) -> str:
        """Format the text and its predictions, a line for each [MASK].

        Args:
            text: Text with [MASK].
            top: Number of predictions for each.
        """
        lines = ("   ".join(f"{token} {p:.0%}" for token, p in likeliest) for likeliest in self(text, top))
        return "\n".join([text, *(f"    {line}" for line in lines)])

    def attention(self, text: str) -> tuple[list[str], np.ndarray]:
        """Compute the tokens of a text, and the attention weights among them, `[blocks, H, T, T]`."""
        row = self.row(text)
        return [self.tokenizer.vocabulary[n] for n in row["token_ids"][0]], attention_scores(self.model, row)[:, 0]


def ids_with_mask(text: str, tokenizer: WordPieceTokenizer) -> list[int]:
    """Encode a text, with the id of [MASK] where it stands in the text.

    Args:
        text: Text with or without [MASK].
        tokenizer: Tokenizer of the model.
    """
    first, *rest = (tokenizer.encode(part).numpy().tolist() for part in text.split(MASK))
    return first + [n for part in rest for n in (SPECIAL_TOKENS[MASK], *part)]


def check_text(text: str, tokenizer: WordPieceTokenizer, context_length: int):
    """Check that a text has a [MASK] and fits the model.

    Args:
        text: Text to fill.
        tokenizer: Tokenizer of the model.
        context_length: Maximum number of tokens, [CLS] and [SEP] included.

    Raises:
        ValueError: The text has no [MASK], or is too long.
    """
    if MASK not in text:
        raise ValueError(f"--text {text!r}: expected {MASK} in the place of a word.")
    count = len(ids_with_mask(text, tokenizer)) + 2
    if count > context_length:
        raise ValueError(
            f"--text {text[:40]!r}...: {count} tokens with [CLS] and [SEP]; expected at most {context_length}, the "
            "context length of the model: shorten the text."
        )


class Validator:
    """Score the masked tokens of fixed rows, the same at each call, and fill the masks of texts.

    Args:
        filler: The model and its tokenizer.
        rows: Packed token and segment ids `[N, T]` each, by name.
        generator: Generator of the masks.
        texts: Texts to fill.
        batch_size: Rows in a batch.

    Raises:
        ValueError: No token is masked.
    """

    def __init__(
        self, filler: MaskFiller, rows: list[dict], generator: MaskedLMMaskGenerator, texts, batch_size: int = 64
    ):
        self.filler, self.texts, self.batch_size = filler, texts, batch_size
        masked_ids, targets, weights = (array.numpy() for array in generator.batch(0, rows["token_ids"]))
        self.inputs, self.targets, self.is_masked = {**rows, "token_ids": masked_ids}, targets, weights > 0
        if not self.is_masked.any():
            raise ValueError("None of the validation tokens is masked; expected a longer validation split.")
        self._score = tf.function(self._losses_and_ranks, reduce_retracing=True)

    @property
    def masked_targets(self) -> np.ndarray:
        """Return the ids at the masked positions, `[M]`."""
        return self.targets[self.is_masked]

    def _losses_and_ranks(self, inputs, targets):
        """Compute -log p of the targets, and the number of ids with a higher logit: `[B, T]` each."""
        logits = self.filler.model(inputs, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        target_logits = tf.gather(logits, targets, batch_dims=2)[..., None]
        return losses, tf.reduce_sum(tf.cast(logits > target_logits, tf.int32), axis=-1)

    def __call__(self) -> Summaries:
        losses, ranks = [], []
        for start in track_progress(range(0, len(self.targets), self.batch_size), self.targets.size):
            batch = slice(start, start + self.batch_size)
            inputs = {name: values[batch] for name, values in self.inputs.items()}
            batch_losses, batch_ranks = self._score(inputs, self.targets[batch])
            losses.append(batch_losses.numpy()[self.is_masked[batch]])
            ranks.append(batch_ranks.numpy()[self.is_masked[batch]])
        losses, ranks = np.concatenate(losses), np.concatenate(ranks)
        return Summaries(
            {
                "val_loss": float(losses.mean(dtype="float64")),
                "accuracy": float(np.mean(ranks == 0)),
                "top5_accuracy": float(np.mean(ranks < TOP)),
            },
            {"predictions": "\n".join(map(self.filler.format_predictions, self.texts))},
            {"attention": masked_lm_report.attention_pixels(*self.filler.attention(self.texts[0]))},
        )
