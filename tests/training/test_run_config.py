"""A run goes on with the settings that it began with: each other one is refused by name."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_seq import data, training
from keras_seq.backends import num_cores
from keras_seq.models import LlamaConfig, LSTMConfig, TransformerConfig
from keras_seq.saving.keras_file import load_untrusted_model, save_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training.run_config import MUTABLE, array_digest, check_resumable, diff, environment, versions

IDS = np.random.default_rng(0).integers(1, 8, size=200).astype("int32")
SIZES = {"embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 8, "context_length": 6}
TRANSFORMER, STEPS = TransformerConfig(**SIZES), 40
TRAIN = training.TrainConfig(use_ema=True)
WINDOWS = data.RandomWindows(IDS, batch_size=3, sequence_length=5)
CHANGED_OPTIONS = {
    "optimizer": "normuon",
    "learning_rate": 0.5,
    "adam_lr_ratio": 0.3,
    "weight_decay": 0.1,
    "beta_2": 0.9,
    "warmup_steps": 3,
    "final_lr_fraction": 0.5,
    "global_clipnorm": 2.0,
    "gradient_accumulation_steps": 2,
    "rematerialization": True,
    "use_ema": False,
    "ema_momentum": 0.5,
    "precision": "bfloat16",
    "validation_characters": 100,
    "sample_length": 5,
}


def settings(model=None, dataset_fn=WINDOWS.dataset, steps=STEPS, train=TRAIN, **options):
    """What config.json records of a training of a newly built model."""
    model = model or TRANSFORMER.build_model(8)
    training.compile_model(model, train, steps, **options)
    return training.run_config.run_settings(model, dataset_fn, 15, steps, train)


@pytest.fixture(scope="module")
def recorded():
    return settings()


@pytest.fixture
def resumes(tmp_path):
    """Raises unless a run that was started with one config goes on with another."""

    def resumes(before, now):
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        (tmp_path / "checkpoints/step-00000004.safetensors").touch()
        training.run_folder.write_checksummed(tmp_path / "config.json", before)
        check_resumable(tmp_path, now)

    return resumes


def test_the_same_settings_go_on_and_so_do_more_steps_other_intervals_and_an_older_run(recorded, resumes):
    other_names = [TRANSFORMER.build_model(8), keras.layers.Dense(2)]  # which a process counts
    resumes(recorded, settings(other_names[0]))
    resumes(recorded, settings(steps=2 * STEPS))
    resumes(recorded, settings(train=dataclasses.replace(TRAIN, log_every=7, patience=3, on_nan="rollback")))
    resumes({"seed": 0}, {"seed": 0, **recorded})
    resumes({"seed": 0, "train": {"log_every": 50}}, {"seed": 0, **recorded})
    with pytest.raises(training.CheckpointError, match=r"length\.steps was 40 and is 20"):
        resumes(recorded, settings(steps=STEPS // 2))


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(training.TrainConfig)])
def test_each_option_of_a_training_is_compared(recorded, resumes, name):
    assert (name in CHANGED_OPTIONS) != (name in MUTABLE)
    if name not in MUTABLE:
        train = dataclasses.replace(TRAIN, **{name: CHANGED_OPTIONS[name]})
        with pytest.raises(training.CheckpointError, match=rf"train\.{name} was .* and is "):
            resumes(recorded, settings(train=train))


def test_the_schedule_the_loss_and_the_optimizer_of_a_compiled_model_are_compared(recorded, resumes):
    with pytest.raises(
        training.CheckpointError, match=r"optimizer\.learning_rate\.class was .* and is 'keras_seq>Inverse"
    ):
        resumes(recorded, settings(schedule=training.InverseSqrtDecay(8, 4)))
    smoothed = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    with pytest.raises(training.CheckpointError, match=r"loss\.reduction was 'sum_over_batch_size' and is 'sum'"):
        resumes(recorded, settings(loss=smoothed))

    def compiled(rate):
        model = TRANSFORMER.build_model(8)
        model.compile(training.SGD(rate), "mse")
        model.optimizer.build(model.trainable_variables)
        return training.run_config.run_settings(
            model, WINDOWS.dataset, 15, STEPS, training.TrainConfig(learning_rate=5.0)
        )

    assert "learning_rate" not in compiled(0.1)["train"]  # which is not that of the model
    with pytest.raises(
        training.CheckpointError, match=r"^\S+ was started with another config: optimizer\.learning_rate was"
    ):
        resumes(compiled(0.1), compiled(0.2))


def changed(value):
    if isinstance(value, np.ndarray):
        return np.concatenate([value[:-1], value[-1:] - 1])
    if isinstance(value, bool):
        return not value
    return value * 2 if isinstance(value, int) and value else value + 1 if isinstance(value, int) else value + 0.1


LLAMA = LlamaConfig(**SIZES, num_key_value_heads=1, sliding_window=3)


@pytest.mark.parametrize(
    "config", [LSTMConfig(4, 6), TRANSFORMER, pytest.param(LLAMA, marks=pytest.mark.rare)], ids=["lstm", "gpt", "llama"]
)
def test_each_field_of_a_models_config_is_compared(config):
    before = settings(config.build_model(8))["architecture"]
    fields = [f.name for f in dataclasses.fields(config) if isinstance(getattr(config, f.name), int | float)]
    assert len(fields) >= 4
    for name in fields:
        other = dataclasses.replace(config, **{name: changed(getattr(config, name))})
        assert diff(before, settings(other.build_model(8))["architecture"]), name
    frozen = config.build_model(8)
    frozen.blocks[0].trainable = False
    assert "trainable" in "".join(diff(before, settings(frozen)["architecture"]))


def test_a_model_of_any_kind_is_described_and_one_from_a_file_is_the_same(recorded, tmp_path):
    save_model(TRANSFORMER.build_model(8), tmp_path / "model.keras")
    loaded = load_untrusted_model(tmp_path / "model.keras")
    assert not diff(recorded["architecture"], settings(loaded)["architecture"])

    def functional(units, twice=False):
        x = inputs = keras.Input((4,))
        dense = keras.layers.Dense(4)
        x = dense(dense(x) if twice else x)
        return keras.Model(inputs, keras.layers.Dense(units)(x))

    of_one, *others = (settings(functional(*args))["architecture"] for args in ((3,), (3,), (5,), (3, True)))
    assert not diff(of_one, others[0])
    assert {name.rpartition(".")[2]: pair for name, pair in diff(of_one, others[1]).items()}["units"] == (3, 5)
    assert diff(of_one, others[2])

    class Opaque(keras.Model):
        def __init__(self, function, units):
            super().__init__()
            self.dense = keras.layers.Dense(units)
            self.dense.build((None, 2))
            self.built = True

    opaque = [settings(Opaque(abs, units))["architecture"] for units in (2, 3)]
    assert opaque[0]["class"] == "Opaque"
    assert diff(*opaque)["weights.parameters"] == (6, 9)


def mixed(ids, batch_size, sequence_length, seed, weight):
    sources = [data.RandomWindows(part, batch_size, sequence_length, seed) for part in (IDS, ids)]
    return data.MixedWindows(sources, (1.0, weight), seed)


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (data.StatefulWindows, {"reset_prob": 0.3, "seed": 1}),
        (data.RandomWindows, {"seed": 1}),
        (data.SequentialWindows, {}),
        (data.ShuffledWindows, {"stride": 2, "seed": 1}),
        (mixed, {"seed": 1, "weight": 0.5}),
    ],
)
def test_each_argument_of_the_batches_is_compared(make, more):
    def described(**changes):
        options = {"ids": IDS, "batch_size": 3, "sequence_length": 5, **more, **changes}
        return batches(make(options.pop("ids"), **options).dataset)

    before, names = described(), ["ids", "batch_size", "sequence_length", *more]
    assert not diff(before, described(ids=IDS.astype("uint16")))
    for name in names:
        value = IDS if name == "ids" else {"batch_size": 3, "sequence_length": 5, **more}[name]
        found = diff(before, described(**{name: changed(value)}))
        assert name.removesuffix("t") in "".join(found), name


def batches(dataset_fn):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    return settings(model, dataset_fn)["batches"]


def test_rows_files_and_a_function_of_the_users_are_compared(tmp_path):
    rows = {"x": np.arange(12.0).reshape(6, 2)}
    before = batches(data.ArrayBatches(rows, 2).dataset)
    rows["x"][5, 1] += 1
    assert [*diff(before, batches(data.ArrayBatches(rows, 2).dataset))] == ["arrays.x.sha256"]

    def of_file(ids, name="train.bin", token=0):
        np.concatenate([[0], ids]).astype("uint16").tofile(tmp_path / name)
        return batches(data.PackedDocuments(data.TokenFiles.open(tmp_path / name, token), 2, 5).dataset)

    before = of_file(IDS)
    assert not diff(before, of_file(IDS, "moved.bin"))
    assert [*diff(before, of_file(changed(IDS)))] == ["files.sha256"]

    def function(ids):
        return lambda first, last: [(ids[step : step + 5], ids[step + 1 : step + 6]) for step in range(first, last)]

    before = batches(function(IDS))
    assert not diff(before, batches(function(IDS.copy())))
    assert [*diff(before, batches(function(IDS[::-1])))] == ["first_batch"]

    class Backwards(data.RandomWindows):
        def starts_of_steps(self, steps):
            return super().starts_of_steps(steps)[:, ::-1]

    assert "first_batch" in diff(batches(WINDOWS.dataset), batches(Backwards(IDS, 3, 5).dataset))


def test_a_long_array_is_read_in_places_from_its_beginning_to_its_end(monkeypatch):
    monkeypatch.setattr(training.run_config, "BLOCK", 10)
    monkeypatch.setattr(training.run_config, "MAX_BLOCKS", 3)
    assert array_digest(IDS) == array_digest(IDS.astype("uint8"))
    different = [array_digest(np.where(np.arange(200) == place, 9, IDS)) for place in (0, 95, 199)]
    assert len({array_digest(IDS), *different, array_digest(IDS[:-1])}) == 5


def test_a_rerun_in_python_with_any_other_setting_is_refused_and_the_same_goes_on(eagerly, tmp_path):
    text = "".join("\n abcdefg"[n] for n in IDS)
    base = {"model": TRANSFORMER, "alphabet": "\n abcdefg", "windows": WINDOWS, "validation": text, "steps": 4}
    base["train"] = training.TrainConfig(validate_every=4, sample_length=3, warmup_steps=0)

    def run(**changes):
        keras.utils.set_random_seed(0)
        given = {**base, **changes}
        tokenizer = CharacterTokenizer(given["alphabet"])
        model = given["model"].build_model(tokenizer.vocabulary_size)
        arguments = given["windows"], given["validation"], given["steps"], given["train"]
        return training.train_language_model(
            tmp_path / "run", model, tokenizer, *arguments, config={}, val_sequence_length=given.get("length")
        )

    result = run()
    for changes, name in (
        ({"train": dataclasses.replace(base["train"], learning_rate=0.5)}, "train.learning_rate"),
        ({"model": dataclasses.replace(TRANSFORMER, dropout=0.5)}, "architecture.blocks.0.dropout"),
        ({"windows": data.RandomWindows(IDS[::-1], 3, 5)}, "batches.ids.sha256"),
        ({"windows": data.ShuffledWindows(IDS, 3, 5)}, "batches.class"),
        ({"validation": text[::-1]}, "validation.sha256"),
        ({"alphabet": "\n abcdefh"}, "tokenizer.sha256"),
        ({"length": 4}, "validation.sequence_length"),
        ({"steps": 3}, "length.steps"),
    ):
        with pytest.raises(training.CheckpointError, match=name.replace(".", r"\.")):
            run(**changes)
    assert run()["val_loss"] == result["val_loss"]


CONFIG = {
    "experiment": {"tokens": 10, "context_length": 5},
    "model": {"name": "lstm", "units": 4},
    "train": {"log_every": 5, "learning_rate": 0.1},
    "corpus": {"name": "shakespeare", "sha256": "ab"},
    "tokenizer": {"vocabulary_size": 9, "sha256": "cd"},
    "seed": 0,
    "budget": {"steps": 10},
    "environment": {"cores": 2, "threads": "one a core", "processor": "one"},
    "versions": {"keras_seq": "0.2.0", "tensorflow": "2.21", "commit": "123"},
}


@pytest.fixture
def run(tmp_path):
    """A run with a checkpoint, as far as anybody looks."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/step-00000004.safetensors").touch()
    training.run_folder.write_checksummed(tmp_path / "config.json", CONFIG)
    return tmp_path


def altered(part, **values):
    return {**CONFIG, part: {**CONFIG[part], **values}}


def test_differences_are_the_leaves_that_are_not_equal_as_json_has_them():
    before = {"a": 1, "b": {"c": [1, 2], "d": None}, "e": 5}
    assert diff(before, {"a": 1, "b": {"c": (1, 2), "d": 3}, "f": 6}) == {
        "b.d": (None, 3),
        "e": (5, None),
        "f": (None, 6),
    }


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("corpus", {"sha256": "xy"}, "corpus.sha256 was 'ab' and is 'xy'"),
        ("tokenizer", {"sha256": "xy"}, "tokenizer.sha256"),
        ("model", {"units": 5}, "model.units was 4 and is 5"),
        ("model", {"dropout": 0.5}, "model.dropout was None and is 0.5"),
        ("train", {"learning_rate": 0.2}, "train.learning_rate"),
        ("versions", {"keras_seq": "9"}, "versions.keras_seq"),
        ("budget", {"steps": 5}, "budget.steps was 10 and is 5"),
        ("budget", {"steps": None}, "budget.steps was 10 and is None"),
    ],
)
def test_what_matters_has_to_be_as_it_was_and_is_named_if_not(run, part, values, message):
    with pytest.raises(training.CheckpointError, match=message):
        check_resumable(run, altered(part, **values))
    with pytest.raises(training.CheckpointError) as both:
        check_resumable(run, {**altered(part, **values), "seed": 1})
    assert message in str(both.value)
    assert "seed was 0 and is 1" in str(both.value)


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("train", {"log_every": 7, "tracker": "wandb"}),
        ("budget", {"steps": 20}),
        ("experiment", {"tokens": 20, "context_length": 6}),
        ("model", {"use_output_gate": False, "kernel_size": None}),  # options of later versions
    ],
)
def test_intervals_lengths_and_the_tracker_may_change(run, part, values):
    check_resumable(run, altered(part, **values))


@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        *(("versions", values, "with other versions: ") for values in ({"tensorflow": "2.22"}, {"commit": None})),
        *(
            ("environment", {name: "another"}, "on another backend, machine or other cores: ")
            for name in ("backend", "cores", "threads", "processor")
        ),
    ],
)
def test_what_is_around_may_change_with_a_warning(run, part, values, words):
    with pytest.warns(UserWarning, match=f"resumes {words}{part}.{next(iter(values))} was "):
        check_resumable(run, altered(part, **values))


def test_where_nothing_can_go_on_nothing_is_compared(run):
    other = altered("model", units=5)
    (run / "checkpoints/step-00000004.safetensors").unlink()
    check_resumable(run, other)
    check_resumable(run / "nowhere", other)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3"])
def test_a_corrupt_config_is_an_error_of_the_run(run, text):
    (run / "config.json").write_text(text)
    with pytest.raises(training.CheckpointError, match=r"config\.json is corrupt.*remove .* to train this run anew\."):
        check_resumable(run, CONFIG)


def test_the_environment_says_on_how_many_cores(monkeypatch):
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    found = environment()
    assert found["backend"] == "tensorflow"
    assert found["cores"] == num_cores()
    assert found["threads"] == "one a core"
    assert found["processor"]
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    assert environment()["threads"] == "TF_NUM_INTRAOP_THREADS=1"


def test_versions_name_the_packages():
    found = versions()
    assert {"keras_seq", "keras", "numpy", "python"} <= found.keys()
    assert all(found.values()) or found["commit"] is None
