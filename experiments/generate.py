"""Write text with a trained model.

    python -m experiments.generate logs/compare/20260101-120000/lstm-seed0 --prompt "ROMEO:" --length 500 --top-k 40
    echo "ROMEO:" | python -m experiments.generate RUN --prompt - --num-samples 3 --out samples.txt

RUN is the folder of a finished run. One text appears as it is written; several are written side by side. Takes seconds.
"""

import dataclasses
import pathlib
import sys
from typing import Annotated, Literal

import tyro

from experiments.options import check_options
from experiments.startup import command_line, one_sentence
from keras_seq.atomic_files import write_text
from keras_seq.generation import SamplingConfig, TextGenerator
from keras_seq.saving.safe_loading import UntrustedModelError, load_untrusted_model
from keras_seq.tokenizers import TokenizerError, load_tokenizer
from keras_seq.training import result_files
from keras_seq.training.checkpoints import CorruptCheckpointError


@dataclasses.dataclass(frozen=True)
class Generate:
    """Write text with a trained model."""

    run: Annotated[pathlib.Path, tyro.conf.Positional]
    """The folder of a finished run: it holds model.keras and vocabulary.json."""
    prompt: str | None = None
    """What the text begins with; - reads it from standard input. By default a line break, or the first token."""
    length: int = 500
    """New characters, or tokens where the run has another tokenizer."""
    num_samples: int = 1
    """How many texts."""
    search: Literal["sample", "beam", "contrastive"] = "sample"
    """sample: draws tokens; beam: the likeliest text that is found; contrastive: likely, unlike what came before."""
    width: int = 4
    """Hypotheses of the beam, or candidates of the contrastive search."""
    alpha: float = 0.6
    """What being different is worth to the contrastive search, from 0 to 1."""
    stop: tuple[str, ...] = ()
    """A text ends before the first of these."""
    seed: int = 0
    """The same seed gives the same texts."""
    out: pathlib.Path | None = None
    """A file to write the texts to as well."""
    sampling: Annotated[SamplingConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=lambda: SamplingConfig(temperature=0.8)
    )

    def __post_init__(self):
        check_options(self, length=0, num_samples=1, width=1, alpha=0)
        if self.alpha > 1:
            raise ValueError(f"--alpha {self.alpha}: expected a number from 0 to 1.")
        if self.search != "sample" and (self.num_samples > 1 or self.stop):
            raise ValueError(f"--search {self.search}: expected one text and no --stop, for it does not draw.")
        if self.out is not None and not self.out.parent.is_dir():
            raise ValueError(f"--out {self.out}: there is no folder {self.out.parent}.")


def load_run(run: pathlib.Path):
    """The model and the tokenizer of a finished run, which somebody else may have made; see SECURITY.md."""
    for name in ("model.keras", "tokenizer.json"):
        if not (run / name).is_file():
            raise ValueError(f"{run}: {name} is not there; expected the folder of a finished run.")
    for name in ("model.keras", "tokenizer.json", "config.json", "result.json"):
        within(run, run / name)
    try:
        model, tokenizer = load_untrusted_model(run / "model.keras"), load_tokenizer(run / "tokenizer.json")
        result_files.check_loaded(run, tokenizer)
    except (UntrustedModelError, TokenizerError, CorruptCheckpointError) as error:
        again = f"to have it written again from the last checkpoint, --resume {run} with the experiment of the run"
        raise ValueError(f"{str(error).rstrip('.')}: {again}.") from error
    return model, tokenizer


def within(run: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """A path in the folder of a run; a ValueError where a symbolic link leads out of it."""
    if not path.resolve().is_relative_to(run.resolve()):
        raise ValueError(f"{path} is a link that leads out of {run}: copy what it stands for, or name another path.")
    return path


def first_prompt(tokenizer) -> str:
    """A line break if the tokenizer has one, else its first token that is not special."""
    tokens = getattr(tokenizer, "tokens", None) or list(tokenizer.characters)
    return "\n" if "\n" in tokens else next(token for token in tokens if not token.startswith("["))


@one_sentence("experiments.generate")
def main(arguments=None):
    """The command line."""
    settings = command_line(Generate, "experiments.generate", __doc__, arguments)
    model, tokenizer = load_run(settings.run)
    prompt = sys.stdin.read() if settings.prompt == "-" else settings.prompt
    prompt = first_prompt(tokenizer) if prompt is None else prompt
    generator = TextGenerator(model, tokenizer)
    options = {**dataclasses.asdict(settings.sampling), "seed": settings.seed, "stop": settings.stop}
    if settings.search == "beam":
        texts = [generator.beam(prompt, settings.length, settings.width)]
        print(texts[0])
    elif settings.search == "contrastive":
        texts = [generator.contrastive(prompt, settings.length, settings.width, settings.alpha)]
        print(texts[0])
    elif settings.num_samples > 1:
        texts = generator(settings.num_samples * [prompt], settings.length, **options)
        for number, text in enumerate(texts, start=1):
            print(f"--- {number} of {settings.num_samples} ---\n{text}")
    else:
        pieces = generator.stream(prompt, settings.length, **options)
        texts = [prompt]
        print(prompt, end="", flush=True)
        for piece in pieces:
            texts[0] += piece
            print(piece, end="", flush=True)
        print()
    if settings.out is not None:
        write_text(settings.out, "\n\n".join(texts) + "\n")


if __name__ == "__main__":
    main()
