"""Generate text with a trained model.

    keras-seq generate logs/compare/20260101-120000-docstrings/lstm-seed0 --prompt "ROMEO:" --top-k 40
    keras-seq generate RUN --prompt "Age: " --regex "[0-9]+"       # --choices yes no, --json-schema FILE
    keras-seq generate RUN --draft SMALL_RUN --prompt "ROMEO:"     # speculative sampling
    keras-seq generate RUN --interactive                # continues every line that is typed
    echo "ROMEO:" | keras-seq generate RUN --prompt - --num-samples 3 --out samples.txt
    keras-seq generate path/to/smollm2-135m-instruct --chat --prompt "Why is the sky blue?" --top-p 0.9

Time: seconds.

RUN is the folder of a finished run, or a Hugging Face folder, whose end-of-text tokens end a text. One text is printed
while it is generated; several are generated as one batch.
"""

import contextlib
import dataclasses
import io
import itertools
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import tyro

from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import RunFolder, check_effects, check_options, check_other_file, command_line
from keras_seq.data import load_corpus
from keras_seq.files import write_text
from keras_seq.generation import Constraint, SamplingConfig, SpeculativeLoop, TextGenerator, choices, json_schema, regex
from keras_seq.runs.finished_run import Unknown, handle_unknown, load_run_or_folder, read_standard_input
from keras_seq.tokenizers import Tokenizer, TokenizerError


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
        if self.out is not None and self.out.is_dir():
            raise ValueError(f"--out {self.out}: expected a file, and this is a folder.")
        check_other_file("--out", self.out, "--json-schema", self.json_schema)

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        drawing = ("seed", *(field.name for field in dataclasses.fields(SamplingConfig)))
        unused = {} if self.method == "sample" else dict.fromkeys(drawing, "--method sample")
        unused |= {} if self.method == "beam" else {"num_beams": "--method beam"}
        contrast = dict.fromkeys(("num_candidates", "alpha"), "--method contrastive")
        unused |= {} if self.method == "contrastive" else contrast
        return unused | ({} if self.draft is not None else {"num_draft_tokens": "--draft"})

    @property
    def constraint(self) -> Constraint | None:
        """The constraint that the options ask for, or None."""
        if self.json_schema is not None:
            return json_schema(load_corpus(self.json_schema).text)
        return regex(self.regex) if self.regex is not None else choices(self.choices) if self.choices else None


def default_prompt(tokenizer: Tokenizer) -> str:
    """Return a line break if the tokenizer keeps it, else its first token that is not special."""
    with contextlib.suppress(TokenizerError):  # of characters without it
        if tokenizer.decode(tokenizer.encode("\n")).endswith("\n"):
            return "\n"
    whole = (token for token in tokenizer.vocabulary if not token.startswith(("[", "##")))
    return next(whole, tokenizer.vocabulary[-1])


def read_prompts() -> Iterator[str]:
    """Yield the lines of standard input, up to an empty one."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # a line that is not UTF-8 is refused, and no other
    with contextlib.suppress(EOFError):
        while prompt := input("> " if sys.stdin.isatty() else ""):
            yield prompt


def draft_loop(config: GenerateConfig, generator: TextGenerator) -> SpeculativeLoop | None:
    """Return the loop of speculative sampling, or None without --draft."""
    if config.draft is None:
        return None
    draft = load_run_or_folder(config.draft)
    if draft.tokenizer.vocabulary != generator.tokenizer.vocabulary:
        raise ValueError(f"--draft {config.draft}: its tokens differ from those of {config.run}; expected the same.")
    return SpeculativeLoop(generator.model, draft.model, config.num_draft_tokens)


def speculative_text(
    loop: SpeculativeLoop, tokenizer: Tokenizer, prompt: str, config: GenerateConfig, seed: int, stops: Sequence[int]
) -> str:
    """Generate a text with a draft model; say on standard error how many passes of the model it took."""
    ids = tokenizer.encode(prompt).tolist()
    speculation = loop(ids, config.max_new_tokens, config.sampling, seed)
    new = [*itertools.takewhile(lambda id: id not in stops, speculation.ids)]
    print(f"{len(speculation.ids)} tokens in {speculation.model_calls} passes of the model", file=sys.stderr)
    return prompt + tokenizer.decode(ids + new)[len(tokenizer.decode(ids)) :]


def print_texts(
    generator: TextGenerator,
    prompt: str,
    config: GenerateConfig,
    seed: int,
    stop_token_ids: Sequence[int] = (),
    draft: SpeculativeLoop | None = None,
) -> list[str]:
    """Generate texts that begin with a prompt, print and return them."""
    prompt = handle_unknown(prompt, generator.tokenizer, config.unknown)
    options = {**dataclasses.asdict(config.sampling), "seed": seed, "constraint": config.constraint}
    options |= {"stop_strings": config.stop_strings, "stop_token_ids": stop_token_ids}
    if config.chat:
        prompt = generator.tokenizer.chat_prompt([{"role": "user", "content": prompt}])
    if draft is not None:
        texts = [speculative_text(draft, generator.tokenizer, prompt, config, seed, stop_token_ids)]
        print(*texts)
    elif config.method == "beam":
        texts = [generator.beam(prompt, config.max_new_tokens, config.num_beams, stop_token_ids=stop_token_ids)]
        print(*texts)
    elif config.method == "contrastive":
        search = (config.num_candidates, config.alpha, stop_token_ids)
        texts = [generator.contrastive(prompt, config.max_new_tokens, *search)]
        print(*texts)
    elif config.num_samples > 1:
        texts = generator(config.num_samples * [prompt], config.max_new_tokens, **options)
        texts = [text.removeprefix(prompt) for text in texts] if config.chat else texts
        for number, text in enumerate(texts, start=1):
            print(f"--- {number} of {config.num_samples} ---\n{text}")
    else:
        texts = [""]
        stream = generator.stream(prompt, config.max_new_tokens, **options)
        for part in stream if config.chat else itertools.chain([prompt], stream):
            texts[0] += part
            print(part, end="", flush=True)
        print()
    return texts


@exit_with_message("keras-seq generate")
def main(arguments: Sequence[str]):
    """Run the command line."""
    config = command_line(GenerateConfig, "keras-seq generate", __doc__, arguments)
    check_effects(config, arguments)
    loaded = load_run_or_folder(config.run)
    tokenizer, stops = loaded.tokenizer, loaded.stop_token_ids
    if config.chat:
        if getattr(tokenizer, "chat_template", None) is None:
            raise ValueError(f"--chat: {config.run} has no chat template; expected the folder of a chat model.")
        tokenizer = tokenizer.without_special_tokens()
    generator, texts = TextGenerator(loaded.model, tokenizer), []
    draft = draft_loop(config, generator)
    try:
        if config.interactive:
            for number, prompt in enumerate(read_prompts()):
                try:
                    texts += print_texts(generator, prompt, config, config.seed + number, stops, draft)
                except ValueError as error:
                    print(error, file=sys.stderr)
        else:
            prompt = read_standard_input() if config.prompt == "-" else config.prompt
            prompt = default_prompt(tokenizer) if prompt is None else prompt
            texts = print_texts(generator, prompt, config, config.seed, stops, draft)
    finally:
        if config.out is not None and texts:
            write_text(config.out, "\n\n".join(texts) + "\n")
