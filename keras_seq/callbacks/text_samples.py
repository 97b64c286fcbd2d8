"""What a language model writes behind a few prompts, while it learns."""

from keras_seq.callbacks.look import Look
from keras_seq.generation import generate
from keras_seq.generation.whole_model import WholeModel
from keras_seq.text.visible import visible
from keras_seq.training.measured import Measured


class TextSamples(Look):
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
        self, tokenizer, prompts, length=300, log_dir=None, every=None, tokens_per_step=1, model=None, **options
    ):
        super().__init__(log_dir, every, tokens_per_step, model)
        self.tokenizer, self.prompts, self.length = tokenizer, list(prompts), length
        self.options = {"temperature": 0.8, **options}

    def lacking(self, model):
        if hasattr(model, "step"):
            return None
        writes = len(getattr(model, "output_shape", ())) == 3 and WholeModel(model)
        return None if writes else "step(ids, state) and no logits [B, T, V], without which it writes no text"

    def measure(self, model):
        if self.lacking(model):
            return Measured({})
        texts = generate(model, self.tokenizer, self.prompts, self.length, **self.options)
        return Measured({}, {f"sample/{visible(p)}": text for p, text in zip(self.prompts, texts, strict=True)})
