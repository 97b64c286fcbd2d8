"""Wrap a character tokenizer as a Keras layer, so that a model that takes text is one `.keras` file."""

import pathlib

import keras

from keras_seq import checks
from keras_seq.layers.introspection import check_tokenizer
from keras_seq.tokenizers.character_tokenizer import CharacterTokenizer
from keras_seq.tokenizers.text_errors import TokenizerError

ASSET = "tokenizer.json"


@keras.saving.register_keras_serializable(package="keras_seq")
class TextToIds(keras.layers.Layer):
    """Convert strings `[B]` to ids `[B, T]`, where T is the longest length and shorter rows end with zeros.

    The tokenizer is saved as an asset of the model. There is no padding mask: use the layer in causal models, whose
    outputs do not depend on later positions. It runs on the TensorFlow backend only.

    Args:
        tokenizer: A `CharacterTokenizer`; None if it will be loaded with the model.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        TokenizerError: In the call: the layer has no tokenizer.

    >>> TextToIds(CharacterTokenizer("abc"))(keras.ops.convert_to_tensor(["ca", "b"])).numpy().tolist()
    [[2, 0], [1, 0]]
    """

    def __init__(self, tokenizer: CharacterTokenizer | None = None, **kwargs):
        super().__init__(**{"trainable": False, **kwargs})
        self._set_tokenizer(tokenizer)

    def _set_tokenizer(self, tokenizer):
        self.tokenizer = tokenizer
        self._tables = () if tokenizer is None else tokenizer.tables  # attributes of the layer are exported with it

    def call(self, texts):
        """Convert texts to ids, padded with 0 on the right."""
        if self.tokenizer is None:
            raise TokenizerError("The layer has no tokenizer; pass one, or load the layer with its model.")
        return self.tokenizer.encode(texts).to_tensor()

    def compute_output_spec(self, texts):
        """Return the shape and dtype of the output, int32 `[B, T]`."""
        return keras.KerasTensor((*texts.shape, None), dtype="int32")

    def get_config(self):
        """Return the config without the tokenizer, which is an asset."""
        return super().get_config()

    def save_assets(self, directory: str) -> None:
        """Write the tokenizer into a folder of the model's archive."""
        self.tokenizer.save(pathlib.Path(directory) / ASSET)

    def load_assets(self, directory: str) -> None:
        """Read the tokenizer from a folder of the model's archive."""
        self._set_tokenizer(CharacterTokenizer.load(pathlib.Path(directory) / ASSET))


def with_text_input(model: keras.Model, tokenizer: CharacterTokenizer) -> keras.Model:
    """Create a model that takes strings `[B]` and applies `model` to their ids.

    Args:
        model: A causal model of ids `[B, T]`.
        tokenizer: Its tokenizer, with as many ids as the model.

    Returns:
        A Keras model named `<model>_of_text`.

    Raises:
        ValueError: The tokenizer and the model have different numbers of ids, or Keras's backend is not TensorFlow.
    """
    checks.tensorflow_backend("A model of texts")
    check_tokenizer(tokenizer, model)
    texts = keras.Input((), dtype="string", name="texts")
    ids = TextToIds(tokenizer, name="text_to_ids")(texts)
    return keras.Model(texts, model(ids), name=f"{model.name}_of_text")
