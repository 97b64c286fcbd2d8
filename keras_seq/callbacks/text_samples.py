"""Show what a language model generates after a few prompts while it trains."""

import pathlib
from collections.abc import Iterable

import keras

from keras_seq.callbacks.diagnostic import Diagnostic, model_arguments
from keras_seq.generation import generate
from keras_seq.generation.uncached_model import UncachedModel
from keras_seq.tokenizers.show_whitespace import show_whitespace
from keras_seq.tracking.summaries import Summaries


class TextSamples(Diagnostic):
    """Write text samples under the Text tab, as `sample/PROMPT`, of any model that `keras_seq.generate` takes.

    ```python
    TextSamples(tokenizer, ["ROMEO:", "The "], log_dir="logs/mine")
    ```

    Args:
        tokenizer: Tokenizer of the model's ids.
        prompts: Texts of at least one token.
        max_new_tokens: Tokens to generate after each prompt.
        log_dir: Folder of the run; required in `fit`.
        update_freq: Steps between two samples; by default one at the end of each epoch.
        tokens_per_step: Position on the axis per step: that of `TokenTensorBoard`, or 1 for steps.
        model: The model to examine if `fit` trains another one that contains it; by default the one that `fit` trains.
        **options: Options of `keras_seq.generate`: temperature (0.8 by default), top_p, seed, ...
    """

    def __init__(
        self,
        tokenizer,
        prompts: Iterable[str],
        max_new_tokens: int = 300,
        log_dir: str | pathlib.Path | None = None,
        update_freq: int | None = None,
        tokens_per_step: int = 1,
        model: keras.Model | None = None,
        **options,
    ):
        super().__init__(log_dir, update_freq, tokens_per_step, model)
        self.tokenizer, self.prompts, self.max_new_tokens = tokenizer, list(prompts), max_new_tokens
        self.options = {"temperature": 0.8, **options}

    def missing_requirement(self, model: keras.Model) -> str | None:
        """Return a phrase if the model takes more than ids or gives no logits.

        Raises what `generate` would raise of one that does.
        """
        if hasattr(model, "step"):
            return None
        if missing := model_arguments(model):
            return missing
        shape = getattr(model, "output_shape", None)  # a subclassed model has none
        can_generate = (shape is None or len(shape) == 3) and UncachedModel(model)
        return None if can_generate else "step(ids, state) and no logits [B, T, V], without which it generates no text"

    def compute_summaries(self, model: keras.Model) -> Summaries:
        """Return one sample per prompt."""
        if self.missing_requirement(model):
            return Summaries({})
        texts = generate(model, self.tokenizer, self.prompts, self.max_new_tokens, **self.options)
        samples = zip(self.prompts, texts, strict=True)
        return Summaries({}, {f"sample/{show_whitespace(prompt)}": text for prompt, text in samples})
