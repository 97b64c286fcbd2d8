"""A vocabulary as a Keras layer, so that a model that takes text is one `.keras` file."""

import pathlib

import keras

from keras_seq.layers.introspection import check_tokenizer
from keras_seq.tokenizers.character_tokenizer import CharacterTokenizer
from keras_seq.tokenizers.text_errors import TokenizerError

ASSET = "tokenizer.json"


@keras.saving.register_keras_serializable(package="keras_seq")
class TextToIds(keras.layers.Layer):
    """Strings `[B]` -> ids `[B, T]`, T that of the longest, zeros behind shorter ones.

    The vocabulary is an asset of the saved model. What is padded with zeros must not matter: to a causal model, what
    stands behind a text does not. It runs on the TensorFlow backend only.

    Args:
        vocabulary: the `Vocabulary`; None where it will come from a file.

    >>> TextToIds(Vocabulary("abc"))(keras.ops.convert_to_tensor(["ca", "b"])).numpy().tolist()
    [[2, 0], [1, 0]]
    """

    def __init__(self, vocabulary=None, **kwargs):
        super().__init__(**{"trainable": False, **kwargs})
        self.vocabulary = vocabulary

    def call(self, texts):
        if self.vocabulary is None:
            raise TokenizerError("The layer has no vocabulary; give it one, or load it with its model.")
        return self.vocabulary.encode(texts).to_tensor()

    def compute_output_spec(self, texts):
        """Int32 `[B, T]`."""
        return keras.KerasTensor((*texts.shape, None), dtype="int32")

    def get_config(self):
        """The vocabulary is no part of it: it comes from the asset."""
        return super().get_config()

    def save_assets(self, directory):
        """Writes the vocabulary into the archive of the model."""
        self.vocabulary.save(pathlib.Path(directory) / ASSET)

    def load_assets(self, directory):
        """Reads it."""
        self.vocabulary = CharacterTokenizer.load(pathlib.Path(directory) / ASSET)


def with_text_input(model, vocabulary) -> keras.Model:
    """From strings `[B]` to what `model` makes of their ids, the vocabulary inside; both have as many ids."""
    check_tokenizer(vocabulary, model)
    texts = keras.Input((), dtype="string", name="texts")
    ids = TextToIds(vocabulary, name="text_to_ids")(texts)
    return keras.Model(texts, model(ids), name=f"{model.name}_of_text")
