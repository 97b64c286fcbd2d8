"""How much of full fine-tuning do adapters of a few percent of the weights reach?

    python -m experiments.finetune                                    # pydoc to Shakespeare, an LSTM
    python -m experiments.finetune --from path/to/smollm2-135m --corpus notes.txt --methods lora
    python -m experiments.finetune --from logs/compare/TIME/mamba-seed0 --trainable "block_1/*" --lora-rank 4
    python -m experiments.finetune --from RUN --methods lora --trainable "*" head --modules-to-save "*bias*"
    python -m experiments.finetune --smoke                            # tiny sizes, takes seconds
    python -m experiments.export logs/finetune/TIME/lora-seed0 --to hugging_face    # adapters merged

Time: 93 s with `--methods full`, on 2 cores.

Of these, 48 s train the base and 24 s the method. By default three methods train that many tokens each.

A language model is trained further on another text: by low-rank additions to its matrices (lora), by its weights
(full), and for comparison from new weights (scratch), with the same batches. All curves share one axis of training
tokens. adapters.safetensors in the run of lora holds the additions, and the weights of `--modules-to-save` (biases are
few and help), alone: `keras_seq.models.lora.load_adapters` reads them.

From `pydoc` to tiny Shakespeare all weights end at 1.610 nats and adapters of 3.8 % of them at 1.889 (one seed). The
gap grows with the tokens of fine-tuning (docs/experiment_log.md).
"""

import dataclasses
import functools
import pathlib

from experiments.finetune.data import BaseText
from experiments.finetune.models import digest, num_trainable, prepare, with_new_weights
from experiments.finetune.report import finetune_report
from experiments.finetune.settings import SMOKE, FinetuneConfig
from experiments.frame.experiment import experiment_main, run_config, run_once
from experiments.frame.finished_run import load_run_or_folder
from experiments.frame.report import Report
from experiments.frame.texts import SplitCorpus
from keras_seq import training
from keras_seq.data import RandomWindows, load_corpus
from keras_seq.models import LanguageModel
from keras_seq.models.lora import save_adapters
from keras_seq.tokenizers import CharacterTokenizer


def train_base(run: pathlib.Path, config: FinetuneConfig, seed: int, text: BaseText, data: SplitCorpus) -> dict:
    """Train the base on its own text; `corpus` in its config.json is that of the fine-tuning, as in all runs beside."""
    model = config.model_config.build_model(data.tokenizer.vocabulary_size)
    windows = RandomWindows(text.train, config.batch_size, config.sequence_length, seed=seed)
    base_corpus = {"name": text.corpus.name, "sha256": text.corpus.sha256}
    extra = {"seed": seed, "base_corpus": base_corpus}
    saved = run_config(config, config.model, config.model_config, config.train, model, data.corpus, **extra)
    steps = config.steps(config.base_tokens)
    return training.train_language_model(
        run, model, data.tokenizer, windows, text.validation_text, steps, config.train, saved
    )


def train_one(
    run: pathlib.Path, config: FinetuneConfig, method: str, seed: int, base: pathlib.Path, data: SplitCorpus
) -> dict:
    """Train the model of `base` by one method."""
    loaded = load_run_or_folder(base)
    described = {"name": loaded.model.name, "parameters": loaded.model.count_params(), "sha256": digest(loaded.model)}
    model = prepare(loaded.model, config, method)
    numbers = {"base_parameters": described["parameters"], "trainable_parameters": num_trainable(model)}
    saved = {
        "experiment": dataclasses.asdict(config) | {"base": str(base)},
        "model": {"name": described["name"], "base": described, "method": method},
        "train": dataclasses.asdict(config.train) | config.train.resolved(model),
        "corpus": {"name": data.corpus.name, "sha256": data.corpus.sha256},
        "seed": seed,
    }

    def finish(summaries):
        if method == "lora":
            save_adapters(model, run / "adapters.safetensors")
        return {"method": method, "seed": seed, **numbers}

    windows = RandomWindows(data.train, config.batch_size, config.sequence_length, seed=seed)
    steps = config.steps(config.tokens)
    return training.train_language_model(
        run, model, data.tokenizer, windows, data.validation_text, steps, config.train, saved, finish=finish
    )


def finetune(config: FinetuneConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, and report the comparison."""
    base, min_length = config.base, config.sequence_length + 1
    if base is None:
        base_text = load_corpus(config.base_corpus).text
        data = SplitCorpus(
            config.corpus, folder, min_length, tokenizer=lambda text, _: CharacterTokenizer.from_text(text + base_text)
        )
        base_data = BaseText(config.base_corpus, data.tokenizer, min_length)
        model = config.model_config.build_model(data.tokenizer.vocabulary_size)
    else:
        loaded = load_run_or_folder(base)
        if not isinstance(loaded.model, LanguageModel):
            raise ValueError(f"--from {base}: its model does not predict the next token; expected a language model.")
        model = loaded.model
        data = SplitCorpus(config.corpus, folder, min_length, tokenizer=lambda *_: loaded.tokenizer)
    if (model.context_length or config.sequence_length) < config.sequence_length:
        raise ValueError(f"--sequence-length {config.sequence_length}: expected at most {model.context_length}.")
    for method in config.methods:
        prepare(with_new_weights(model), config, method)  # patterns are checked before anything is trained
    data.introduce(config.train, min_length, f"{model.name} of {model.count_params():,} parameters")
    rows = []
    for seed in range(config.num_seeds):
        if config.base is None:
            base = folder / f"base-seed{seed}"
            run_once(base, seed, functools.partial(train_base, base, config, seed, base_data, data))
        for method in config.methods:
            run = folder / f"{method}-seed{seed}"
            result = run_once(run, seed, functools.partial(train_one, run, config, method, seed, base, data))
            rows.append({"run": run.name, **result})
    return finetune_report(f"Fine-tuning {model.name} on {data.corpus.name}", folder, rows)


main = experiment_main("finetune", FinetuneConfig, SMOKE, finetune, __doc__)

if __name__ == "__main__":
    main()
