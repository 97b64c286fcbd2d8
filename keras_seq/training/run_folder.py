"""Load the model and the tokenizer of a finished run, without trusting its files; see SECURITY.md."""

import os
import pathlib

import keras

from keras_seq.models import Ensemble, LanguageModel
from keras_seq.saving.keras_file import UntrustedModelError, load_untrusted_model
from keras_seq.tokenizers import TokenizerError, load_tokenizer
from keras_seq.tokenizers.base import Tokenizer
from keras_seq.training import checksummed_json, result_files
from keras_seq.training.checkpoints import CorruptCheckpointError, has_checkpoints

FILES = (result_files.MODEL, result_files.TOKENIZER)


def load_run(run: str | os.PathLike[str]) -> tuple[keras.Model, Tokenizer]:
    """Load the model and the tokenizer of a finished run.

    Args:
        run: Folder of the run.

    Returns:
        The model and the tokenizer.

    Raises:
        ValueError: If a file is missing, corrupt, of another run, written by an older version, or a link out of `run`.
    """
    run = pathlib.Path(run)
    if not run.is_dir():
        expected = f"its folder {run.parent}" if run.name in FILES else "the folder of a finished run"
        raise ValueError(f"{run} {'is a file' if run.exists() else 'does not exist'}; expected {expected}.")
    for name in (*FILES, "config.json", "result.json"):
        within(run, run / name)
    try:
        if (run / "config.json").is_file():
            checksummed_json.read(run / "config.json")  # refuses a run of keras_seq 0.1, whose files have other names
        for name in FILES:
            if not (run / name).is_file():
                expected = "the folder of a finished run"
                if has_checkpoints(run / "checkpoints"):
                    remedy = f"to go on from the latest checkpoint, --resume {run} with the run's experiment"
                    raise ValueError(
                        f"{run}: {name} is missing, the run is not finished; expected {expected}: {remedy}."
                    )
                raise ValueError(f"{run}: {name} is missing; expected {expected}{_runs_in(run)}.")
        model, tokenizer = load_untrusted_model(run / FILES[0]), load_tokenizer(run / FILES[1])
        result_files.check_loaded(run, tokenizer)
    except (UntrustedModelError, TokenizerError, CorruptCheckpointError) as error:
        remedy = f"to write it again from the latest checkpoint, --resume {run} with the run's experiment"
        raise ValueError(f"{str(error).rstrip('.')}: {remedy}.") from error
    return model, tokenizer


def load_language_model(run: str | os.PathLike[str]) -> tuple[LanguageModel | Ensemble, Tokenizer]:
    """Load the language model and the tokenizer of a finished run.

    Args:
        run: Folder of the run.

    Returns:
        The model and the tokenizer.

    Raises:
        ValueError: As `load_run`; or if the model does not predict the next token.
    """
    model, tokenizer = load_run(run)
    if not isinstance(model, (LanguageModel, Ensemble)):
        raise ValueError(f"{run}: its model is not a language model; expected one that predicts the next token.")
    return model, tokenizer


def within(run: str | os.PathLike[str], path: str | os.PathLike[str]) -> pathlib.Path:
    """Return the path, after checking that it does not lead out of a run folder through a symbolic link.

    Args:
        run: Folder of the run.
        path: Path in it.

    Raises:
        ValueError: If the path leads out of the folder.
    """
    run, path = pathlib.Path(run), pathlib.Path(path)
    if not path.resolve().is_relative_to(run.resolve()):
        raise ValueError(f"{path} is a link that leads out of {run}: copy the file it refers to, or name another path.")
    return path


def _runs_in(folder):
    """Return, as the end of a sentence, the finished runs in a folder that is not itself one."""
    runs = [str(path.parent) for path in sorted(folder.glob(f"*/{FILES[0]}"))]
    return f", such as {' or '.join(runs[:4])}" if runs else ""
