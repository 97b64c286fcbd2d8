"""How fast does a word-level LSTM overfit on disjoint and on overlapping windows?

    python -m experiments.word_lm                                     # Python's help topics, offline
    python -m experiments.word_lm --corpus shakespeare --epochs 4 --overlap 2 --train.validate-every 250
    python -m experiments.word_lm --smoke                             # tiny sizes, takes seconds
    python -m experiments.generate logs/word_lm/20260101-120000/disjoint-seed0 --prompt "The " --max-new-tokens 60

Time: 4 to 6 minutes on 2 cores.

The same LSTM is trained for the same number of steps on either kind; each token is in four of the overlapping windows.
The learning rate is constant, so every point of a curve is the end of a shorter training.

Expected: per epoch, overlapping windows overfit much sooner; per token, both curves fall together, to perplexities of
25.9 (disjoint) and 26.8.
"""

import pathlib

from experiments.frame.experiment import experiment_main, run_config, run_once
from experiments.frame.report import Report
from experiments.frame.texts import SplitCorpus
from experiments.word_lm.findings import corpus_info, with_curve_findings
from experiments.word_lm.report import UNKNOWN, word_lm_report
from experiments.word_lm.settings import SMOKE, WINDOWS, WordLMConfig
from keras_seq import training
from keras_seq.data import ShuffledWindows
from keras_seq.tokenizers import WordTokenizer


def train_one(
    run: pathlib.Path, config: WordLMConfig, kind: str, windows: ShuffledWindows, steps: int, data: SplitCorpus
) -> dict:
    """Train the LSTM on one kind of windows."""
    model = config.lstm.build_model(data.tokenizer.vocabulary_size, dtype=config.train.dtype_policy)
    saved = run_config(config, "lstm", config.lstm, config.train, model, data.corpus, windows=kind, seed=config.seed)
    return training.train_language_model(
        run, model, data.tokenizer, windows, data.validation_text, steps, config.train, saved
    )


def compare(config: WordLMConfig, folder: pathlib.Path) -> Report:
    """Train both models, unless they are finished in `folder`, and report the comparison."""
    data = SplitCorpus(
        config.corpus, folder, tokenizer=lambda _, train: WordTokenizer.from_text(train, min_count=config.min_count)
    )
    windows = {kind: config.windows(kind, data.train) for kind in WINDOWS}
    info = corpus_info(data, config.sequence_length)
    data.introduce(config.train, config.sequence_length + 1, UNKNOWN.format(**info))
    steps, rows = config.epochs * windows["disjoint"].steps_per_epoch, []
    for kind in WINDOWS:
        run = folder / f"{kind}-seed{config.seed}"
        result = run_once(
            run, config.seed, lambda run=run, kind=kind: train_one(run, config, kind, windows[kind], steps, data)
        )
        tokens_per_epoch = windows[kind].steps_per_epoch * windows[kind].tokens_per_step
        row = {"windows": kind, "run": run.name, "tokens_per_epoch": tokens_per_epoch, **result}
        rows.append(with_curve_findings(folder, row, info["tokens_per_word"]))
    return word_lm_report(folder, info, rows)


main = experiment_main("word_lm", WordLMConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
