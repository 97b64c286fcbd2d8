"""What a language model writes behind a few prompts, while it learns."""

from keras_seq.callbacks.diagnostic import Diagnostic
from keras_seq.generation import generate
from keras_seq.generation.uncached_model import UncachedModel
from keras_seq.tokenizers.show_whitespace import show_whitespace
from keras_seq.tracking.summaries import Summaries


class TextSamples(Diagnostic):
    """Samples of text under the Text tab, as `sample/PROMPT`, of any model that `keras_seq.generate` takes.

    ```python
    TextSamples(vocabulary, ["ROMEO:", "The "], log_dir="logs/mine")
    ```

    Args:
        tokenizer: the `Vocabulary` or other tokenizer of the model's ids.
        prompts: texts of at least one token.
        length: tokens to be written behind each.
        **options: those of `Look`, and of `keras_seq.generate`: temperature (0.8 by default), top_p, seed, ...
    """

    def __init__(
        self, tokenizer, prompts, length=300, log_dir=None, update_freq=None, tokens_per_step=1, model=None, **options
    ):
        super().__init__(log_dir, update_freq, tokens_per_step, model)
        self.tokenizer, self.prompts, self.length = tokenizer, list(prompts), length
        self.options = {"temperature": 0.8, **options}

    def missing_requirement(self, model):
        if hasattr(model, "step"):
            return None
        writes = len(getattr(model, "output_shape", ())) == 3 and UncachedModel(model)
        return None if writes else "step(ids, state) and no logits [B, T, V], without which it writes no text"

    def compute_summaries(self, model):
        if self.missing_requirement(model):
            return Summaries({})
        texts = generate(model, self.tokenizer, self.prompts, self.length, **self.options)
        return Summaries(
            {}, {f"sample/{show_whitespace(p)}": text for p, text in zip(self.prompts, texts, strict=True)}
        )
