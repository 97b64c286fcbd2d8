"""How well does BERT predict masked tokens of a text (Devlin et al., 2019, https://arxiv.org/abs/1810.04805)?

    python -m experiments.masked_lm                                # Python's help topics, offline
    python -m experiments.masked_lm --corpus shakespeare --text "To be or not to [MASK]." --text "Good [MASK], my lord."
    python -m experiments.masked_lm --run logs/masked_lm/20260101-120000/encoder-seed0 --text "Return the [MASK] of x."
    python -m experiments.masked_lm --smoke                        # tiny sizes, takes seconds

Time: 5 to 6 minutes on 2 cores.

Expected result on pydoc, seed 0, for 2,391 masked tokens of the validation split: val_loss 3.880 nats per token and
accuracy 35.8 %; the unigram frequencies alone have 5.061 nats and 23.3 %. The loss is still falling then; in texts
given by --text, the predictions are mostly frequent words.
"""

import dataclasses
import pathlib
from typing import Annotated

import keras
import tyro

from experiments.frame.corpora import print_overlap_note
from experiments.frame.option_checks import check_options
from experiments.frame.report import validation_note
from experiments.frame.runs import check_same_corpus, run_config, start_or_resume
from experiments.frame.startup import exit_with_message
from experiments.masked_lm import report as masked_lm_report
from experiments.masked_lm.scores import (
    MASK,
    MaskFiller,
    Validator,
    check_text,
    mask_generator,
    segment_pairs,
    unigram_baseline,
)
from keras_seq import models, training
from keras_seq.data import ArrayBatches, load_corpus
from keras_seq.data.step_dataset import step_dataset
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.saving import save_model
from keras_seq.tokenizers import WordPieceTokenizer
from keras_seq.training.run_folder import load_run

OVERLAP = 4  # training rows that contain each token, at different positions
SENTENCES = {
    "pydoc": (
        "If the object is not callable, a [MASK] is raised.",
        "The [MASK] statement is used for conditional execution.",
        "Return the [MASK] of the sequence.",
    ),
    "shakespeare": ("To be or not to [MASK].", "Good [MASK], my lord.", "What is thy [MASK], sir?"),
}


@dataclasses.dataclass(frozen=True)
class EncoderConfig(models.BertConfig):
    """Config of a BERT encoder that trains in minutes."""

    context_length: int = 64
    """Context length T in tokens, [CLS] and both [SEP] included."""


@dataclasses.dataclass(frozen=True)
class TrainConfig(training.TrainConfig):
    """Training options with a lower learning rate, for the post-norm blocks."""

    learning_rate: float | None = 0.005
    """Peak learning rate."""


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig:
    """Train an encoder on masked language modeling, or fill the masks of a text."""

    corpus: str = "pydoc"
    """pydoc or docstrings (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file.
    """
    vocabulary_size: int = 2000
    """Maximum vocabulary size of the WordPiece tokenizer, which is trained on the training split."""
    tokens: int = 1_024_000
    """Tokens that the encoder is trained on, masked or not, over all epochs."""
    batch_size: int = 8
    """Rows in a batch."""
    mask_rate: float = 0.15
    """Probability that a token is masked."""
    text: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Text with [MASK] for the encoder to fill; may be given several times."""
    top_k: int = 5
    """Number of predictions shown for each [MASK] of --text with --run."""
    run: str | None = None
    """Folder of a finished run whose model fills --text; nothing is trained."""
    seed: int = 0
    """Random seed of the weights, rows, masks and dropout."""
    log_dir: str = "logs"
    """Folder for logs; the run is written to LOG_DIR/masked_lm/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/masked_lm/UTC-TIME to resume. Options not given are read from its config.json."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    encoder: EncoderConfig = dataclasses.field(default_factory=EncoderConfig)

    def __post_init__(self):
        check_options(self, vocabulary_size=1, tokens=1, batch_size=1, top_k=1)
        if not 0 < self.mask_rate <= 1:
            raise ValueError(f"--mask-rate {self.mask_rate}: expected a probability above 0 and at most 1.")
        for name, minimum in (("context_length", 8), ("num_segments", 2)):
            value = getattr(self.encoder, name)
            if value < minimum:
                raise ValueError(f"--encoder.{name.replace('_', '-')} {value}: expected at least {minimum}.")
        if self.run is not None and not self.text:
            raise ValueError(f"--run {self.run}: expected a --text to fill in, such as 'To be or not to {MASK}.'.")

    @property
    def steps(self) -> int:
        """Return the number of training steps that `tokens` take."""
        return -(-self.tokens // (self.batch_size * self.encoder.context_length))


def smoke_config(config: MaskedLMConfig) -> MaskedLMConfig:
    """Return the config with tiny sizes that take seconds."""
    return dataclasses.replace(
        config,
        vocabulary_size=400,
        tokens=20 * 8 * 32,
        batch_size=8,
        train=dataclasses.replace(config.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10),
        encoder=EncoderConfig(embedding_dim=16, num_layers=2, num_heads=2, feed_forward_dim=32, context_length=32),
    )


def fill_text(config: MaskedLMConfig) -> str:
    """Fill the masks of --text with the model of --run."""
    filler = MaskFiller(*load_run(pathlib.Path(config.run)))
    return "\n".join(filler.format_predictions(text, config.top_k) for text in config.text)


def masked_sentences(config: MaskedLMConfig, tokenizer: WordPieceTokenizer, validation_ids) -> tuple[str, ...]:
    """Return the texts to fill: --text, or sentences that suit the corpus, or parts of the validation split.

    Args:
        config: Options of the experiment.
        tokenizer: Tokenizer of the model.
        validation_ids: Ids of the validation split, `[N]`.

    Raises:
        ValueError: A text has no [MASK], or too many tokens for the encoder.
    """
    texts = config.text or SENTENCES.get(config.corpus)
    if not texts:
        length = (config.encoder.context_length - 3) // 2
        starts = range(0, min(len(validation_ids) - length, 3 * length) + 1, length)
        spans = [validation_ids[start : start + length] for start in starts]
        sides = [(span[: length // 2], span[length // 2 + 1 :]) for span in spans]
        texts = tuple(f"{tokenizer.decode(left)} {MASK} {tokenizer.decode(right)}" for left, right in sides)
    for text in texts:
        check_text(text, tokenizer, config.encoder.context_length)
    return texts


def train_one(
    folder: pathlib.Path, config: MaskedLMConfig, corpus, tokenizer, train_ids, rows: list[dict], validation_rows, texts
) -> dict:
    """Train and score the encoder.

    Args:
        folder: Folder of the run.
        config: Options of the experiment.
        corpus: The corpus, recorded in config.json.
        tokenizer: Tokenizer of the model.
        train_ids: Ids of the training split, `[N]`.
        rows: Rows of the whole validation split, scored at the end.
        validation_rows: Rows to score during training.
        texts: Texts to fill at each validation.

    Returns:
        The content of result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    model = models.masked_lm(config.encoder.build_model(tokenizer.vocabulary_size, dtype=config.train.dtype_policy))
    length, generator = config.encoder.context_length, mask_generator(tokenizer, config.mask_rate, config.seed)
    examples = ArrayBatches(
        segment_pairs(train_ids, length, length // OVERLAP, config.seed), config.batch_size, config.seed
    )

    def masked_batch(step):
        rows = examples.batch(step)
        masked_ids, targets, weights = generator.batch(step, rows["token_ids"])
        return {**rows, "token_ids": masked_ids}, targets, weights

    filler = MaskFiller(model, tokenizer)
    # Not the seed of training. The validators draw step 0 only, so every validation masks the same tokens.
    validation_generator = mask_generator(tokenizer, config.mask_rate, config.seed + 1)
    validator = final_validator = Validator(filler, rows, validation_generator, texts)
    times = len(rows["token_ids"]) / len(validation_rows["token_ids"])
    if times > 1:
        validator = Validator(filler, validation_rows, validation_generator, texts)
    train_config = {**dataclasses.asdict(config.train), **config.train.resolved(model)}
    corpus_info = {"name": corpus.name, "sha256": corpus.sha256}
    tokens_per_step = config.batch_size * length
    loss = TokenCrossEntropy()
    training.compile_model(model, config.train, config.steps, loss, tokens_per_step=tokens_per_step)
    logger, summaries = training.fit_resumable(
        folder,
        model,
        lambda start_step, stop_step: step_dataset(masked_batch, start_step, stop_step),
        tokens_per_step,
        config.steps,
        config.train,
        validator,
        run_config(config, "encoder", config.encoder, train_config, seed=config.seed, corpus=corpus_info),
        folder.name,
        final_validate_fn=None if validator is final_validator else final_validator,
        final_duration_ratio=times,
    )
    tokenizer.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", model)
    result = {
        "parameters": model.count_params(),
        "train_tokens": logger.step * config.batch_size * length,
        "train_seconds": logger.seconds,
        "train_loss": logger.loss,
        "masked_tokens": int(final_validator.is_masked.sum()),
        **summaries.scalars,
        "unigram_baseline": unigram_baseline(train_ids, final_validator.masked_targets, tokenizer.vocabulary_size),
        "predictions": summaries.texts["predictions"],
    }
    masked_lm_report.plot_attention(folder.parent / "attention.png", *filler.attention(texts[0]))
    training.write_result(folder, result)
    return result


def pretrain(config: MaskedLMConfig, folder: pathlib.Path) -> dict:
    """Train the encoder unless it is finished, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the experiment.

    Returns:
        The content of result.json.

    Raises:
        ValueError: A split of the corpus is too short, or a text cannot be filled.
    """
    corpus = load_corpus(config.corpus)
    check_same_corpus(folder, corpus)
    train_text, validation_text = corpus.split()
    tokenizer = WordPieceTokenizer.from_text(train_text, vocabulary_size=config.vocabulary_size)
    train_ids, validation_ids = (tokenizer.encode(text).numpy() for text in (train_text, validation_text))
    part_ids = tokenizer.encode(config.train.validated_part(validation_text)).numpy()
    length = config.encoder.context_length
    min_length = length + (config.batch_size - 1) * (length // OVERLAP)
    for split, ids, needed in (("training", train_ids, min_length), ("validation", validation_ids, length)):
        if len(ids) < needed:
            raise ValueError(
                f"The {split} split of the corpus {corpus.name!r} has {len(ids)} tokens; expected at least {needed}: "
                "give a longer text, or a smaller --encoder.context-length or --batch-size."
            )
    if len(part_ids) < length:
        raise ValueError(
            f"--train.validation-characters {config.train.validation_characters}: {len(part_ids)} tokens; expected at "
            f"least {length}, the --encoder.context-length: give more characters."
        )
    texts = masked_sentences(config, tokenizer, validation_ids)
    models.masked_lm(config.encoder.build_model(tokenizer.vocabulary_size))  # raises before training
    print(
        f"{corpus.name}: {len(train_ids):,} training tokens, {len(validation_ids):,} validation tokens, vocabulary "
        f"size {tokenizer.vocabulary_size:,}; {config.steps:,} steps of {config.batch_size} x {length}"
        f"{validation_note(config.train, validation_text, length)}"
    )
    print_overlap_note(train_text, validation_text)
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / f"encoder-seed{config.seed}"
    rows = [segment_pairs(ids, length, length - 3, config.seed) for ids in (validation_ids, part_ids)]
    result = training.load_result(run) or train_one(run, config, corpus, tokenizer, train_ids, *rows, texts)
    masked_lm_report.write_report(folder, run, corpus.name, result)
    return result


@exit_with_message("experiments.masked_lm")
def main(arguments: list[str] | None = None):
    """Run the experiment from the command line."""
    with start_or_resume(MaskedLMConfig, "masked_lm", __doc__, arguments, smoke_config) as (config, folder):
        if config.run is not None:
            print(fill_text(config))
        else:
            print(masked_lm_report.final_message(folder, pretrain(config, folder)))


if __name__ == "__main__":
    main()
