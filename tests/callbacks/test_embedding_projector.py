import keras
import matplotlib.image
import numpy as np
from google.protobuf import text_format
from matplotlib.colors import to_rgb
from tensorboard.plugins.projector import ProjectorConfig

from keras_seq.callbacks import EmbeddingProjector, embedding_projector
from keras_seq.callbacks.embedding_projector import (
    CLASSES,
    SPRITE_PIXELS,
    metadata_tsv,
    token_class,
    write_sprites,
)
from tests.callbacks.conftest import LENGTH, MODELS, VOCABULARY


def test_the_files_hold_the_weights_and_a_label_for_each(own_fit, tmp_path):
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    own_fit(model, EmbeddingProjector(VOCABULARY, tmp_path))
    config = text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), ProjectorConfig())
    (embedding,) = config.embeddings
    assert embedding.tensor_name == "embedding"
    assert [*embedding.tensor_shape] == [VOCABULARY.vocabulary_size, 3]
    vectors = np.loadtxt(tmp_path / embedding.tensor_path, delimiter="\t", dtype="float32")
    np.testing.assert_allclose(vectors, keras.ops.convert_to_numpy(model.embedding.embeddings), rtol=1e-6)
    header, *lines = (tmp_path / embedding.metadata_path).read_text(encoding="utf-8").splitlines()
    assert header.split("\t") == ["token", "class", "id"]
    assert len(lines) == VOCABULARY.vocabulary_size
    labels = [line.split("\t")[0] for line in lines]
    assert {"·", "⏎", "⇥", "<", "T"} <= {*labels}
    assert labels[VOCABULARY.encode("\t")[0]] == "⇥"


def test_a_label_is_one_cell_whatever_the_token():
    rows = metadata_tsv(["\t", "\r\n", "", "\x85", "a b", "\u2028", "#", '"'])
    lines = rows.split("\n")
    assert lines[-1] == ""
    assert [len(line.split("\t")) for line in lines[:-1]] == [3] * 9
    assert not {"\r", "\x85"} & {*rows}


def test_every_token_has_an_image_in_the_color_of_its_class(tmp_path):
    tokens = ["a", "B", "7", " ", "猫"]
    write_sprites(tmp_path / "tokens.png", tokens)
    image = matplotlib.image.imread(tmp_path / "tokens.png")
    assert image.shape == (3 * SPRITE_PIXELS, 3 * SPRITE_PIXELS, 4)  # three columns
    for n, token in enumerate(tokens):
        row, column = divmod(n, 3)
        cell = image[row * SPRITE_PIXELS :][:SPRITE_PIXELS, column * SPRITE_PIXELS :][:, :SPRITE_PIXELS]
        color = cell[cell[..., 3] == 1][:, :3].mean(axis=0)
        np.testing.assert_allclose(color, to_rgb(CLASSES[token_class(token)][1]), atol=0.02)


def test_a_large_vocabulary_has_no_images(tmp_path, monkeypatch):
    monkeypatch.setattr(embedding_projector, "MAX_SPRITES", 3)
    EmbeddingProjector(VOCABULARY, tmp_path).write(MODELS["lstm"].build_model(VOCABULARY.vocabulary_size))
    assert not (tmp_path / "tokens.png").exists()
    assert "sprite" not in (tmp_path / "projector_config.pbtxt").read_text()


def test_classes_are_of_the_first_character():
    kinds = {"e": "lower case", "É": "upper case", "7": "digit", "!": "punctuation", "+": "symbol", "猫": "letter"}
    kinds |= {" ": "white space", "\n": "white space", "the": "lower case", "[UNK]": "punctuation", "": "symbol"}
    assert {token: token_class(token) for token in kinds} == kinds


def test_only_embeddings_of_the_vocabulary_are_shown_and_each_by_its_name(tmp_path):
    ids = keras.Input((LENGTH,), dtype="int32")
    one = keras.layers.Embedding(VOCABULARY.vocabulary_size, 3, name="one")(ids)
    two = keras.layers.Embedding(VOCABULARY.vocabulary_size, 2, name="two")(ids)
    other = keras.layers.Embedding(VOCABULARY.vocabulary_size + 1, 2, name="other")(ids)
    model = keras.Model(ids, keras.layers.Concatenate()([one, two, other]))
    assert EmbeddingProjector([*VOCABULARY.vocabulary], tmp_path / "new").write(model) == ["one", "two"]
    assert len([*(tmp_path / "new").iterdir()]) == 2 * 2 + 2


def test_a_model_without_such_an_embedding_is_said_to_have_none(plain, own_fit, tmp_path, capsys):
    own_fit(plain, EmbeddingProjector(["a", "b"], tmp_path))
    assert capsys.readouterr().out == "EmbeddingProjector shows nothing of plain, which has no Embedding of 2 rows.\n"
    assert not [*tmp_path.iterdir()]
