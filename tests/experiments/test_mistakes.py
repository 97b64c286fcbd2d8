"""Mistakes on a command line that only this experiment can know; those of a type are in tests/bad_input."""

import pytest

from keras_seq.training import run_folder

# words of the command line, and what the message names where that is not these words
MISTAKES = {
    "compare": [
        *("--corpus {files} | folder", "--corpus {files}/empty | empty", "--corpus {files}/latin | offset 2"),
        *("--corpus {files}/short | too short", "--corpus {files}/streams | batch_size=12", "--models bilstm | bilstm"),
        *("--corpus /nonexistent | /nonexistent", "--log-dir {files}/empty | {files}/empty", "--models | --models"),
        *("--models ltsm | 'ltsm'", "--models lstm lstm | each once", "--strip-whitespace nope | nope"),
        *("--sweep-factors 1 -3 | --sweep-factors 1.0 -3.0", "--lstm.dropout 1 | dropout=1.0"),
        *("--transformer.num-heads 3 | num_heads=3", "--transformer.context-length 8", "--bilstm.units 4 | --bilstm"),
        *("--lstm.recurrent-initializer nope | recurrent_initializer='nope'", "frobnicate | frobnicate"),
        *("--resume {files}/torn | config.json is corrupt", "--resume {files}/old | keras_seq 0.1"),
        *("--resume {files}/other | does not hold the config", "--resume {files}/newer | frobnicate"),
        *(
            "--models lstm --transformer.num-layers 2 | --transformer.num-layers",
            "--sweep-tokens 1000 | --sweep-tokens",
        ),
        *(
            "--sweep learning-rate --sweep-tokens 100000000 --tokens 1000 | --sweep-tokens",
            "--sweep-factors 1 2 | --sweep-factors",
        ),
        *("--models transformer --reset-prob 0.5 | --reset-prob", "--train.learning-rate 1e39 | learning_rate"),
        "--train.no-use-ema --train.ema-momentum 0.9 | ema_momentum",
        "--train.optimizer adamw --train.adam-lr-ratio 0.1 | adam_lr_ratio",
    ],
    "crossover": [
        *("--models lstm lstm", "--sizes 200k 200k | --sizes 200000 200000", "--budgets 0", "--sizes -1"),
        *(
            "--models lstm --learning-rates 0.1 0.2 | expected one for each of lstm",
            "--corpus pydoc --models transformer --sizes 9000 | 9000",
        ),
        *(
            "--models lstm --learning-rates 0 | --learning-rates 0.0",
            "--corpus pydoc --sequence-length 100000 | too short",
        ),
        "--models lstm --learning-rates 0.1 --train.learning-rate 0.1 | --train.learning-rate",
    ],
    "date_translation": [
        "--pairs 10 | --pairs 10: expected at least the --batch-size 64",
        *("--training-dates 36000 | --training-dates 36000: expected at most 33525", "--num-beams 1"),
        *("--train.warmup-steps 0", "--model.num-heads 3 | num_heads=3", "--label-smoothing 1 | --label-smoothing 1.0"),
        *("--text 3.9.1994 | --run and --text", "--run nowhere | --run and --text"),
        *("--run nowhere --text 3.9.1994 | nowhere", "--run somewhere --text 1 --steps 3 | --steps"),
        "--schedule inverse_square_root --train.final-lr-fraction 0.5 | final-lr-fraction",
    ],
    "entropy_floor": [
        *("--vocabulary-size 1", "--vocabulary-size 27", "--vocabulary-size 26 --order 6 | order=6", "--width 12"),
        *("--tokens 1", "--validation-tokens 64", "--train.validation-characters 64", "--models lstm lstm"),
        "--corpora grammar --order 2 | --order",
    ],
    "finetune": [
        *("--methods full --lora-rank 2 | --lora-rank", "--from somewhere --base-tokens 1000 | --base-tokens"),
        "--methods scratch --trainable head | --trainable",
    ],
    "forecast": [
        *("--width 12", "--series seasonal seasonal | --series", "--values 200", "--horizon 0", "--forecasts 1"),
        "--heads quantiles --num-paths 20 | --num-paths",
    ],
    "gradient_descent": ["--num-examples 399", "--batch-size 15", "--epochs 1"],
    "loss_by_position": [
        *("--sequence-lengths 64 | two or more", "--sequence-lengths 64 64 | each once", "--sequence-lengths 64 96"),
        *("--sequence-lengths 7 14", "--sequence-lengths 64 65536 --batch-tokens 65536 | is too short"),
        *("--batch-tokens 100", "--transformer.context-length 64 | --sequence-lengths"),
        "--transformer.num-heads 5 | 5",
    ],
    "masked_lm": [
        "--run nowhere --text [MASK] --corpus {files}/text | expected no --run",
        *("--top-k 3 | --top-k", "--run somewhere --text a --tokens 1000 | --tokens"),
        *(
            f"--corpus {{files}}/text --vocabulary-size 80 {words}"
            for words in (
                *("--text nothing | expected [MASK]", f"--text [MASK]{'.' * 80} | shorten the text"),
                *("--encoder.context-length 7 | context-length 7", "--encoder.context-length 100000 | at least"),
                *("--train.validation-characters 65 | characters 65", "--encoder.num-segments 1 | num-segments 1"),
                *("--encoder.num-heads 3 | num_heads=3", "--vocabulary-size 10 | vocabulary_size"),
                *("--mask-rate 0 | --mask-rate 0.0", "--mask-rate 1e-9 | None of the validation tokens is masked"),
            )
        ),
    ],
    "optimizers": [
        *("--sequence-length 100000 | too short", "--width 6", "--factors 1 0 | --factors 1.0 0.0"),
        *("--factors 1 1 | --factors 1.0 1.0", "--optimizers adam adam", "--train.learning-rate 1 | --factors"),
        *("--train.optimizer adam | --optimizers", "--optimizers sgd --train.adam-lr-ratio 0.1 | adam_lr_ratio"),
    ],
    "recall": [
        *("--max-items 9 | at most half the --max-length, 8", "--alphabet-size 31 | 32", "--tasks parity parity"),
        *("--models lstm lstm", "--tasks parity permutations --alphabet-size 40 | --alphabet-size"),
        "--tasks parity --max-items 2 | --max-items",
    ],
    "recipe_ablation": [
        "--corpus pydoc --legacy.sequence-length 100000 | too short",
        "--corpus pydoc --legacy.sequence-length 38000 | without its whitespace",
        *("--corpus pydoc --legacy.batch-size 4000 | batch_size=4000", "--individual size | size"),
        *("--legacy.batch-size 5", "--legacy.units 0 | units 0", "--legacy.train.patience 2", "--changes"),
        *("--legacy.reset-prob 1.5 | --legacy.reset-prob=1.5", "--changes schedule schedule"),
    ],
    "scaling": [
        *("--corpus pydoc --sequence-length 100000 | too short", "--tokens 10 | less than a batch"),
        *("--compute 1e6 | less than a batch", "--compute inf", "--families lstm lstm"),
    ],
    "sequence_reversal": [
        *("--models lstm lstm", "--alphabet-size 1", "--alphabet-size 53", "--transformer.context-length 20"),
        *("--transformer.num-heads 5 | num_heads=5", "--broken-mask --lstm.units 8 | --lstm.units"),
    ],
    "shakespeare": [
        *("--reset-prob 2 | --reset-prob", "--members gru | gru", "--corpus pydoc --context-length 100000 | too short"),
        *("--members transformer --reset-prob 0.5 | --reset-prob", "--members ngrams --lstm.units 8 | --lstm.units"),
        *("--min-counts 1 3 2 | do not fall", "--min-counts 0 1", "--members lstm --min-counts 1 | --min-counts"),
        "--members transformer --transformer.context-length 8 | the --context-length",
        "--corpus pydoc --members ngrams --min-counts 1000000000 | min_counts=[1000000000]",
    ],
    "speedrun": [
        *("--recipe nowhere.py | nowhere.py", "--recipe {files}/large | at most 40,000", "--record ! | a name"),
        *("--record new --corpus pydoc | --record new", "--record new --num-seeds 2 | --num-seeds 2"),
    ],
    "space_restoration": [
        *("--sequence-length 3", "--models lstm lstm", "--sequence-length 200 | --bert.context-length 128"),
        *("--text abc | --run and --text", "--run nowhere | --run and --text", "--run nowhere --text abc | nowhere"),
        *("--corpus {files}/spaced | training split", "--bilstm.num-tags 3 | num-tags 3"),
        *("--encoder.num-heads 5 | num_heads=5", "--run somewhere --text a --characters 1000 | --characters"),
    ],
    "word_lm": [
        *("--overlap 1", "--overlap 5", "--min-count 1000000 | min_count=1000000", "--lstm.dropout 1 | dropout=1.0"),
        "--corpus {files}/words | batch_size=16",
        "--corpus {files}/words --sequence-length 4 --batch-size 1 | 0 of them words",
    ],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Texts and folders of runs, by the names that `MISTAKES` calls them."""
    folder = tmp_path_factory.mktemp("files")
    texts = {"empty": "", "short": "too short", "streams": "a few more " * 65, "spaced": "a b " * 300}
    texts |= {"large": "#" * 40_001}
    texts |= {"words": "to be or not to be, " * 20 + "." * 50, "text": "to be or not to be that is the question " * 100}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "latin").write_bytes("naïve ".encode("latin-1") * 200)
    for name in ("torn", "old", "other", "newer"):
        (folder / name / "lstm-seed0").mkdir(parents=True)
    for name, config in (("torn", '{"experi'), ("old", '{"experiment": {}}')):
        (folder / name / "lstm-seed0/config.json").write_text(config, encoding="utf-8")
    for name, config in (("other", {}), ("newer", {"experiment": {"frobnicate": 1}})):
        run_folder.write_checksummed(folder / name / "lstm-seed0/config.json", config)
    return folder


@pytest.mark.parametrize(("name", "mistake"), [(name, mistake) for name in MISTAKES for mistake in MISTAKES[name]])
def test_a_mistake_is_named_and_leaves_nothing(refuses, files, name, mistake):
    refuses(name, *mistake.format(files=files).split(" | "))
