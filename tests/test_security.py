"""What SECURITY.md promises of the sources: no code from files, no Lambda, https and loopback only."""

import ast
import html.parser
import re

import numpy as np
import pytest

from keras_seq.commands.score import score_page
from keras_seq.evaluation import TextScore
from keras_seq.interpretability.traces import ModelTrace
from keras_seq.reports.inspection import inspect_page
from keras_seq.reports.tables import tensorboard_command
from keras_seq.training import run_folder
from tests.processes import ROOT

SOURCES = sorted(path for folder in ("keras_seq", "experiments") for path in (ROOT / folder).rglob("*.py"))
SHOWN = [
    *SOURCES,
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("experiments/**/*.md"),
    ROOT / "README.md",
    ROOT / "logs/README.md",
    ROOT / "Makefile",
]
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "code", "codeop", "runpy"}
CALLS = {"eval", "exec", "compile", "__import__", "Lambda", "TFSMLayer", "enable_unsafe_deserialization", "system"}
PICKLED = {"pickle", "allow_pickle", "fix_imports"}
HOSTILE = '</script><script>alert("1")</script>\u2028\'<img src=x onerror=y>&amp;`${z}`\u202e\0'


def calls(tree):
    """The name of what is called, and the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "attr", None) or getattr(node.func, "id", ""), node


def keywords(call):
    return {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}


def faults(source):
    """What in a source could run what a file says."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from (name for name in names if name.split(".")[0] in MODULES)
    for name, call in calls(tree):
        function = isinstance(call.func, ast.Name)
        attribute = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "")
        if name in CALLS and (function or name in CALLS - {"compile", "eval"}):
            yield f"{name}()"
        if name == "compile" and attribute == "builtins":
            yield "compile()"
        given = keywords(call)
        yield from (f"{name}({key}=)" for key in PICKLED & given.keys() if given[key] is not False)
        if name in ("load_model", "deserialize_keras_object") and given.get("safe_mode", True) is not True:
            yield f"{name}(safe_mode=)"
        if given.get("shell"):
            yield f"{name}(shell=)"


def test_no_source_runs_what_a_file_says():
    for path in SOURCES:
        assert [*faults(path.read_text(encoding="utf-8"))] == [], path


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "from pickle import loads", "import joblib.x", "eval('1')", "exec(x)", "compile(x, '', '')"),
        *("keras.layers.Lambda(f)", "np.load(p, allow_pickle=True)", "keras.models.load_model(p, safe_mode=False)"),
        *("subprocess.run(x, shell=True)", "os.system(x)", "keras.config.enable_unsafe_deserialization()"),
        *("deserialize_keras_object(x, safe_mode=unsafe)", "__import__(x)"),
    ],
)
def test_what_is_looked_for_is_found(source):
    assert [*faults(source)]


def test_models_of_others_are_read_by_the_careful_reader_alone():
    """`experiments` read the folder of a run, which may be anybody's; what they made themselves they do not read."""
    readers = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if "load_model(" in (text := path.read_text(encoding="utf-8"))
        for name, call in calls(ast.parse(text))
        if name == "load_model" and getattr(call.func, "attr", "")
    ]
    own = "keras_seq/saving/exporter.py"  # reads what the process that started it has written
    assert readers == [own, "keras_seq/saving/keras_file.py"]


def test_the_network_is_asked_over_https_in_one_place_alone():
    words = re.compile(
        r"\b(urllib\.request|http\.client|import requests|get_file|url(open|retrieve)|create_connection)\b"
    )
    users = [path.name for path in SOURCES if words.search(path.read_text(encoding="utf-8"))]
    assert users == ["builtin_texts.py"]


def test_tensorboard_is_started_on_loopback_alone():
    """Without --host or --bind_all it listens on localhost."""
    for path in SHOWN:
        text = path.read_text(encoding="utf-8")
        assert "bind_all" not in text, path
        assert not re.search(r"tensorboard[^\n]*--host[= ](?!127\.0\.0\.1|localhost)", text), path


def test_the_command_that_is_printed_says_nothing_of_hosts(tmp_path):
    said = tensorboard_command(tmp_path)
    assert "--logdir" in said
    assert "host" not in said.replace(str(tmp_path), "")
    assert "bind" not in said.replace(str(tmp_path), "")


class Tags(html.parser.HTMLParser):
    """The tags of a page with the names of their attributes, each kind once, and the texts of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.scripts, self.inside = set(), [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add((tag, *sorted(name for name, _ in attributes)))
        self.inside = tag == "script" and not attributes

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)
            self.inside = False


def score_html(tokens, run):
    losses = np.r_[np.nan, np.ones(len(tokens) - 1)].astype("float32")
    score = TextScore(tokens, losses, len(tokens) - 1)
    return score_page(score, run, 3, 5)


def trace_html(tokens, run):
    probabilities = np.full((len(tokens), 3), 1 / 3)
    signals = {"lstm": {"h": np.ones((len(tokens), 2))}}
    trace = ModelTrace(tokens, np.zeros(len(tokens), int), probabilities, {}, signals, lambda ids: tokens[ids[0]])
    return inspect_page(trace, run)


@pytest.mark.parametrize("page_of", [score_html, trace_html])
def test_no_character_of_a_text_leaves_its_place_in_a_page(page_of, tmp_path):
    """Of text and prompt; tests/reports/test_comparison_report.py has the comparison's page."""
    plain, hostile = (tmp_path / re.sub("[/\0]", "", name) for name in ("run", HOSTILE))
    for run, name in ((plain, "plain"), (hostile, HOSTILE)):
        run.mkdir()
        run_folder.write_checksummed(run / "config.json", {"model": {"name": name}, "corpus": {"name": name}})
    plain, page = page_of(("a\n", "b", "c"), plain), page_of((HOSTILE, HOSTILE + "\n", HOSTILE), hostile)
    assert Tags(page).tags == Tags(plain).tags
    assert Tags(page).scripts == Tags(plain).scripts
    assert not {"\u202e", "\0"} & {*page}


def test_no_script_of_a_page_makes_markup_of_text():
    pages = [path for kind in ("*.js", "*.html") for path in (ROOT / "keras_seq").rglob(kind)]
    assert pages
    for path in [*SOURCES, *pages]:
        text = path.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "new Function"):
            assert word not in text, path
