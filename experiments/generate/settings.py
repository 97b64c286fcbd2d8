"""Settings of `experiments.generate`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from experiments.common.finished_run import Unknown
from experiments.common.options import RunFolder, check_options
from keras_seq.data import load_corpus
from keras_seq.generation import Constraint, SamplingConfig, choices, json_schema, regex


@dataclasses.dataclass(frozen=True)
class GenerateConfig:
    """Generate text with a trained model."""

    run: RunFolder
    prompt: str | None = None
    """Beginning of the text; - reads standard input. By default a line break, or the first token if there is none."""
    interactive: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Read prompts from standard input, one a line, until an empty line or Ctrl-D; the n-th has the seed plus n - 1."""
    chat: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The prompt is a message to a chat model, whose chat template surrounds it; only the answer is printed."""
    unknown: Unknown = "error"
    """What to do with characters of a prompt that the model does not know: error names them, drop leaves them out."""
    max_new_tokens: int = 500
    """Number of tokens to generate (characters, unless the run has another tokenizer), if no --stop-strings occurs."""
    num_samples: int = 1
    """Number of texts."""
    stop_strings: tuple[str, ...] = ()
    """Strings; a text ends before the first one that is generated."""
    choices: tuple[str, ...] = ()
    """Texts, one of which is generated after the prompt."""
    regex: str | None = None
    """Regular expression that the whole text after the prompt matches; it ends where the model would leave it."""
    json_schema: pathlib.Path | None = None
    """File of a JSON schema; the text after the prompt is JSON of it."""
    seed: int = 0
    """Random seed; the same seed gives the same texts."""
    out: pathlib.Path | None = None
    """File to write the texts to, besides printing them."""
    sampling: Annotated[SamplingConfig, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=lambda: SamplingConfig(temperature=0.8)
    )
    method: Literal["sample", "beam", "contrastive"] = "sample"
    """sample: draw tokens at random; beam: search for the most probable text; contrastive: with little repetition."""
    num_beams: int = 4
    """Hypotheses of the beam search."""
    num_candidates: int = 4
    """Candidate tokens of a step of the contrastive search."""
    draft: pathlib.Path | None = None
    """Folder of a run or Hugging Face folder of a small model with the same tokens, which proposes them: speculative
    sampling, whose texts are distributed as without it."""
    num_draft_tokens: int = 4
    """Tokens that the draft proposes at a time."""
    alpha: float = 0.6
    """Weight of the repetition penalty in the contrastive search, from 0 to 1."""

    def __post_init__(self):
        check_options(self, max_new_tokens=0, num_samples=1, num_beams=1, num_candidates=1, num_draft_tokens=1, alpha=0)
        if self.alpha > 1:
            raise ValueError(f"--alpha {self.alpha}: expected a number from 0 to 1.")
        if self.method != "sample" and (self.num_samples > 1 or self.stop_strings or self.chat):
            raise ValueError(f"--method {self.method}: expected --num-samples 1, no --stop-strings and no --chat.")
        if self.regex == "" or "" in self.choices:
            name = "--regex" if self.regex == "" else "--choices"
            raise ValueError(f"{name} '': expected at least one character.")
        constraints = [name for name in ("choices", "regex", "json_schema") if getattr(self, name)]
        if len(constraints) > 1 or (constraints and self.method != "sample"):
            raise ValueError("--choices, --regex, --json-schema: expected one of them, and --method sample.")
        others = constraints or self.method != "sample" or self.num_samples > 1 or self.stop_strings or self.chat
        if self.draft is not None and (others or self.sampling.repetition_penalty is not None):
            expected = "--method sample, --num-samples 1, no --stop-strings, --repetition-penalty, --chat or constraint"
            raise ValueError(f"--draft {self.draft}: expected {expected}.")
        if self.interactive and self.prompt is not None:
            raise ValueError(f"--prompt {self.prompt}: expected no --prompt beside --interactive, which reads prompts.")
        if self.out is not None and not self.out.parent.is_dir():
            raise ValueError(f"--out {self.out}: the folder {self.out.parent} does not exist.")

    @property
    def constraint(self) -> Constraint | None:
        """The constraint that the options ask for, or None."""
        if self.json_schema is not None:
            return json_schema(load_corpus(self.json_schema).text)
        return regex(self.regex) if self.regex is not None else choices(self.choices) if self.choices else None
