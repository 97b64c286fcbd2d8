"""Kills a training process with SIGKILL again and again, lets it go on each time, and compares the end.

    python tests/training/kills.py lstm transformer --kills 20      a table: moments tried, survived, lost

Each model is trained once without a stop and then in chains: a process is killed at a random moment, the next one goes
on in its folder, until one comes to the end. The moments: after a random time, and before, within or after a
random one of the operations that make a file durable, or within an event of TensorBoard's file. Each process is a fork
of this one, which only imports Keras's backend and never runs it, so that the import is paid once. On TensorFlow XLA is
off, for to compile would be most of the time.
"""

import argparse
import collections
import os
import pathlib
import random
import select
import shutil
import signal
import sys
import tempfile
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from ends import differences, end

from keras_seq import training
from keras_seq.data import ArrayBatches, RandomWindows, StatefulWindows, TokenFiles
from keras_seq.files import write_json
from keras_seq.models import LANGUAGE_MODELS, MODELS, masked_lm
from keras_seq.models.config import sized
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries
from keras_seq.tracking.tensorboard import EventFile
from keras_seq.training import optimizers, trainer

CHARACTERS = "\n abcdefg"
BATCH, LENGTH, STEPS = 3, 5, 96
IDS = np.random.default_rng(0).integers(len(CHARACTERS), size=200).astype("int32")
SIZES = {  # of a tiny model of each kind, with dropout where it has any
    **{"embedding_dim": 4, "units": 4, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 6, "dropout": 0.2},
    **{"state_dim": 2, "context_length": LENGTH, "num_encoder_layers": 1, "num_decoder_layers": 1, "num_tags": 2},
}
FILES = {"first.bin": IDS[:50], "second.bin": IDS[50:120]}  # what language models read, on disk
TRAIN = training.TrainConfig(
    warmup_steps=2, log_every=6, validate_every=32, checkpoint_every=4, sample_length=3, patience=100
)
MOST = {"remove": 3}  # operations of a kind at a start; of the others there are many


def train(name, folder):
    """Trains to the end, from the last checkpoint if there is one."""
    optimizers.has_time_loop = lambda model: True  # no XLA
    keras.utils.set_random_seed(3)
    config = {"model": {"name": name}, "seed": 1}
    if name in LANGUAGE_MODELS:
        model = sized(name, **SIZES).build_model(len(CHARACTERS))
        sizes = {"batch_size": BATCH, "sequence_length": LENGTH, "seed": 1}
        stateful = model.context_length is None
        files = TokenFiles.open([folder.parent / file for file in FILES])
        windows = StatefulWindows(files, reset_prob=0.3, **sizes) if stateful else RandomWindows(files, **sizes)
        tokenizer = CharacterTokenizer(CHARACTERS)
        training.train_language_model(
            folder, model, tokenizer, windows, tokenizer.decode(IDS[120:]), STEPS, TRAIN, config
        )
        return
    model = sized(name, **SIZES).build_model(len(CHARACTERS) + 1)
    rows = IDS.reshape(20, 10) + 1  # 0 is padding
    firsts, seconds = rows[:, :LENGTH], rows[:, LENGTH:]
    if name in ("bert", "modernbert"):
        model = masked_lm(model)
    x = {
        "bert": {"token_ids": firsts, "segment_ids": firsts % 2},
        **{key: {"encoder_token_ids": firsts, "decoder_token_ids": seconds} for key in ("seq2seq", "t5")},
    }
    y = firsts % 2 if name == "bilstm" else seconds
    dataset_fn = ArrayBatches((x.get(name, firsts), y), BATCH, seed=1).dataset
    training.compile_model(model, TRAIN, STEPS)

    def validate():
        logits = model(x.get(name, firsts), training=False)
        return Summaries({"val_loss": float(keras.ops.mean(model.loss(y, logits)))})

    training.fit_resumable(folder, model, dataset_fn, BATCH * LENGTH, STEPS, TRAIN, validate, config)
    write_json(folder / "result.json", {})


def nothing(real, *arguments):
    """Before the operation."""


def torn(append, file, events):
    """Within an event."""
    append(file, events)
    os.truncate(file.path, file.path.stat().st_size - 9)


TRAPS = {  # moment: the operation, and what it still does before the process dies
    "fsync": (os, "fsync", nothing),
    "half a file": (pathlib.Path, "write_bytes", lambda real, path, data: real(path, data[: len(data) // 2])),
    "rename": (os, "replace", nothing),
    "after rename": (os, "replace", lambda real, *arguments: real(*arguments)),
    "remove": (pathlib.Path, "unlink", nothing),  # of a checkpoint
    "half an event": (EventFile, "_append", torn),
}
MOMENTS = ("time", *TRAPS)


def lay_trap(moment, count):
    """Makes this process kill itself at the `count`-th operation of a kind."""
    owner, name, last = TRAPS[moment]
    real = getattr(owner, name)

    def trapped(*arguments, **options):
        nonlocal count
        count -= moment != "remove" or arguments[0].name.startswith("step-")
        if count == 0:
            last(real, *arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    setattr(owner, name, trapped)


def attempt(name, folder, moment=None, chance=None):
    """Trains in a process of its own; returns the signal that ended it, 0 for none."""
    begun, begins = os.pipe()
    count = chance and chance.randint(1, MOST.get(moment, 20))  # here, as a fork's draws do not count in this process
    process = os.fork()
    if process == 0:
        os.close(begun)
        with open(folder.with_suffix(".log"), "a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        try:
            if moment not in (None, "time"):
                lay_trap(moment, count)

            class Tells(trainer.TerminateOnNonFinite):
                def on_train_begin(self, logs=None):
                    os.write(begins, b"x")

            trainer.TerminateOnNonFinite = Tells
            train(name, folder)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    os.close(begins)
    if moment == "time":
        select.select([begun], [], [])  # it trains, or has ended
        # what becomes ready again is the end of the pipe, which comes with the end of the process
        os.read(begun, 1)
        select.select([begun], [], [], chance.uniform(0, 1))
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    os.close(begun)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"{folder}: failed\n{folder.with_suffix('.log').read_text()[-3000:]}")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def chains(name, kills, seed, place):
    """How often each kind of moment was tried, and survived."""
    chance, tried, survived = random.Random(f"{name} {seed}"), collections.Counter(), collections.Counter()
    for file, ids in FILES.items():
        ids.astype("<u2").tofile(place / file)
    whole = place / f"{name}-whole"
    attempt(name, whole)
    expected, chain = end(whole), 0
    plan = [MOMENTS[n % len(MOMENTS)] for n in range(kills)]
    chance.shuffle(plan)
    while plan:
        folder, mine, ended = place / f"{name}-{chain}", collections.Counter(), False
        while plan and not ended:
            ended = attempt(name, folder, plan[-1], chance) != signal.SIGKILL
            if not ended:
                mine[plan.pop()] += 1
        if not ended:
            attempt(name, folder)
        got = end(folder)
        wrong = differences(got, expected)
        print(f"{name}, chain {chain}: {mine.total()} kills, differs in {wrong}", flush=True)
        tried += mine
        survived += collections.Counter() if wrong else mine
        chain += 1
    return tried, survived


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder to keep the runs in")
    given = parser.parse_args()
    place = given.keep or pathlib.Path(tempfile.mkdtemp())
    place.mkdir(parents=True, exist_ok=True)
    rows, lost = [], 0
    try:
        for name in given.models:
            tried, survived = chains(name, given.kills, given.seed, place)
            rows += [(name, moment, tried[moment], survived[moment]) for moment in MOMENTS if tried[moment]]
    finally:
        print(f"{'model':12} {'moment':14} tried survived lost")
        for name, moment, count, fine in rows:
            print(f"{name:12} {moment:14} {count:5} {fine:8} {count - fine:4}")
            lost += count - fine
        print(f"{'all':12} {'':14} {sum(r[2] for r in rows):5} {sum(r[3] for r in rows):8} {lost:4}", flush=True)
        if given.keep is None:
            shutil.rmtree(place)
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
