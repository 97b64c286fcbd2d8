"""Generate text with a trained model.

    python -m experiments.generate logs/compare/20260101-120000/lstm-seed0 --prompt "ROMEO:" --top-k 40
    python -m experiments.generate RUN --prompt "Age: " --regex "[0-9]+"       # --choices yes no, --json-schema FILE
    python -m experiments.generate RUN --draft SMALL_RUN --prompt "ROMEO:"     # speculative sampling
    python -m experiments.generate RUN --interactive                # continues every line that is typed
    echo "ROMEO:" | python -m experiments.generate RUN --prompt - --num-samples 3 --out samples.txt
    python -m experiments.generate path/to/smollm2-135m-instruct --chat --prompt "Why is the sky blue?" --top-p 0.9

Time: seconds.

RUN is the folder of a finished run, or a Hugging Face folder, whose end-of-text tokens end a text. One text is printed
while it is generated; several are generated as one batch.
"""

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence

from experiments.common.command import exit_with_message
from experiments.common.finished_run import handle_unknown, load_run_or_folder, read_standard_input
from experiments.common.options import command_line
from experiments.generate.settings import GenerateConfig
from keras_seq.files import write_text
from keras_seq.generation import SpeculativeLoop, TextGenerator
from keras_seq.tokenizers.base import Tokenizer


def default_prompt(tokenizer: Tokenizer) -> str:
    """Return a line break if the tokenizer has one, else its first token that is not special."""
    tokens = tokenizer.vocabulary
    return "\n" if "\n" in tokens else next(token for token in tokens if not token.startswith("["))


def read_prompts() -> Iterator[str]:
    """Yield the lines of standard input, up to an empty one."""
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
        texts = [generator.beam(prompt, config.max_new_tokens, config.num_beams)]
        print(*texts)
    elif config.method == "contrastive":
        texts = [generator.contrastive(prompt, config.max_new_tokens, config.num_candidates, config.alpha)]
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


@exit_with_message("experiments.generate")
def main(arguments: Sequence[str] | None = None):
    """Run the command line."""
    config = command_line(GenerateConfig, "experiments.generate", __doc__, arguments)
    loaded = load_run_or_folder(config.run)
    tokenizer, stops = loaded.tokenizer, loaded.stop_token_ids
    if config.chat:
        if getattr(tokenizer, "chat_template", None) is None:
            raise ValueError(f"--chat: {config.run} has no chat template; expected the folder of a chat model.")
        tokenizer = tokenizer.without_special_tokens()
    generator, texts = TextGenerator(loaded.model, tokenizer), []
    draft = draft_loop(config, generator)
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
    if config.out is not None:
        write_text(config.out, "\n\n".join(texts) + "\n")


if __name__ == "__main__":
    main()
