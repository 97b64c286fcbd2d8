"""The rules of the house that its imports and names show, read from the source."""

import ast
import functools
import importlib
import inspect
import pathlib
import pkgutil
import re

import keras
import pytest

import keras_seq.layers
import keras_seq.training
from tests.conftest import RARE_CASES

ROOT = pathlib.Path(__file__).parents[1]
ORDER = (  # each package may import those that follow it
    *("experiments", "commands", "runs", "reports"),
    *("training", "callbacks", "saving", "interpretability", "evaluation"),
    *("generation", "pretrained", "tracking", "data", "baselines"),
    *("models", "tokenizers", "layers", "ops"),
)
EVERYWHERE = {"backends", "checks", "files", "random_draws", "bounded_process"}
MAY_IMPORT = {package: {*ORDER[n + 1 :], *EVERYWHERE} for n, package in enumerate(ORDER)}
BACKENDS = {"tensorflow", "jax", "torch"}
TENSORFLOW_ONLY = {  # the files of keras_seq that import TensorFlow, besides ops/*/tensorflow.py
    *("ops/compiled.py", "ops/replicas.py", "ops/xla.py", "data/pipeline.py", "tokenizers/characters.py"),
    *("saving/text_graph.py", "saving/step_graph.py", "callbacks/diagnostics.py"),
}
PYTHON_FILES = [path for folder in ("keras_seq", "experiments", "tests") for path in (ROOT / folder).rglob("*.py")]


def sources(package):
    folder = ROOT / "experiments" if package == "experiments" else ROOT / "keras_seq" / package
    files = sorted(folder.rglob("*.py"))
    assert files
    return files


@functools.cache
def imports(path):
    """Every dotted name that a file imports; `from a import b` is a.b."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_the_table_above_names_every_package():
    packages = {path.parent.name for path in (ROOT / "keras_seq").glob("*/__init__.py")}
    assert packages | {"experiments"} == MAY_IMPORT.keys()


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_run_one_way(package):
    for path in sources(package):
        for name in imports(path):
            head, *rest = name.split(".")
            if head == "keras_seq" and rest and rest[0] != package:
                assert rest[0] in MAY_IMPORT[package], f"{path.relative_to(ROOT)} imports {name}"
            assert head != "experiments" or package == "experiments", f"{path.relative_to(ROOT)} imports {name}"
            assert head != "tests", f"{path.relative_to(ROOT)} imports {name}"


def test_no_experiment_imports_another():
    for path in sources("experiments"):
        own = path.relative_to(ROOT / "experiments").parts[0].removesuffix(".py")
        for name in imports(path):
            _, *rest = name.split(".") if name.startswith("experiments.") else (name, own)
            assert rest[0] in ("common", own.removesuffix(".py")), f"{path.relative_to(ROOT)} imports {name}"


def test_no_experiment_has_a_folder_in_its_folder():
    files = (path.relative_to(ROOT) for path in sources("experiments"))
    assert not [path for path in files if len(path.parts) > 3 and "records" not in path.parts]


@pytest.mark.parametrize("package", ["layers", "models"])
def test_layers_and_models_know_no_backend(package):
    for path in sources(package):
        assert not BACKENDS & {name.split(".")[0] for name in imports(path)}, path


def test_what_only_tensorflow_runs_is_in_few_files():
    files = {
        path.relative_to(ROOT / "keras_seq") for path in (ROOT / "keras_seq").rglob("*.py") if _has_tensorflow(path)
    }
    assert {path.as_posix() for path in files if path.name != "tensorflow.py"} == TENSORFLOW_ONLY


def _has_tensorflow(path):
    return any(name.split(".")[0] == "tensorflow" for name in imports(path))


def test_only_public_names_of_keras_are_used_and_tensorflow_draws_by_seeds_that_are_given():
    """Else a draw would depend on what ran before, in the tests too, which set TensorFlow's own seed only once."""
    private = re.compile(r"\bkeras\.src\b|\bfrom keras import .*\bsrc\b|\btensorflow\.python\b")
    drawn = re.compile(r"\btf\.random\.(?!(?:experimental\.)?stateless_|split\b|fold_in\b)\w+")
    for path in {*PYTHON_FILES} - {pathlib.Path(__file__)}:
        text = path.read_text(encoding="utf-8")
        assert not [*private.findall(text), *drawn.findall(text)], path


def test_no_file_is_a_drawer_for_everything():
    assert not {path.name for path in PYTHON_FILES} & {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}


def test_everything_that_keras_saves_by_name_is_registered():
    kinds = (
        *(keras.layers.Layer, keras.optimizers.Optimizer, keras.initializers.Initializer),
        *(keras.optimizers.schedules.LearningRateSchedule, keras.losses.Loss, keras.metrics.Metric),
    )
    found = set()
    for module in pkgutil.walk_packages(keras_seq.__path__, "keras_seq."):
        if module.name.split(".")[-1] in BACKENDS or module.name == "keras_seq.ops.xla":
            continue  # functions; they import a backend, which need not be installed
        if module.name == "keras_seq.evaluation.harness":
            continue  # no layer; it imports lm_eval, which need not be installed
        for _, member in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            ours = issubclass(member, kinds) and member.__module__.startswith("keras_seq.")
            exported = member.__name__ in {*keras_seq.layers.__all__, *keras_seq.training.__all__} - {"ExplicitState"}
            derived = any(kind.__module__.startswith("keras_seq.") for kind in member.__subclasses__())  # not a test's
            if ours and (exported or not derived):
                found.add(member)  # what is only there to be inherited from is never saved
    assert {"LSTM", "Stateful", "LanguageModel", "Muon", "WarmupLinearDecay"} <= {m.__name__ for m in found}
    for member in found:
        name = keras.saving.get_registered_name(member)
        assert name == f"keras_seq>{member.__name__}", member
        assert keras.saving.get_registered_object(name) is member, member


def test_every_rare_case_is_of_a_test_that_is_there():
    for line in RARE_CASES:
        path, name = line.partition("[")[0].split("::")
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), line


def test_what_runs_on_any_backend_is_run_on_others():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^(?:ANY_BACKEND|ON_TORCH_TOO) := (.*)$", makefile, re.MULTILINE)
    listed = tuple(path for line in lines for path in line.split())
    assert len(lines) == 2
    assert all((ROOT / path).exists() for path in listed)
    tests = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    marked = [path for path in tests if "any_backend" in (ROOT / path).read_text(encoding="utf-8")]
    assert not [path for path in marked if not path.startswith(listed) and path != "tests/test_architecture.py"]
