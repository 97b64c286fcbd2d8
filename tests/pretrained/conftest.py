"""What the tests of pretrained models share: models of transformers with random weights, in folders."""

import functools
import types
import warnings

import pytest

pytest.importorskip("transformers")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="session")
def hugging_face(tmp_path_factory):
    """A function from a name in CONFIGS to a model of transformers and the folder that it was saved to."""
    from tests.pretrained.random_configs import CONFIGS, random_model

    @functools.cache  # no test changes a folder
    def make(name):
        model = random_model(*CONFIGS[name])
        folder = tmp_path_factory.mktemp("hugging_face") / name
        model.save_pretrained(folder)
        return types.SimpleNamespace(model=model, folder=folder)

    return make


@pytest.fixture(scope="session")
def loaded(hugging_face):
    """A function from a name in CONFIGS to what `load` makes of its folder."""
    from keras_seq import pretrained

    ignore = ["cls.seq_relationship.*"]
    return functools.cache(lambda name: pretrained.load(hugging_face(name).folder, ignore=ignore))
