"""Render self-contained HTML pages: no other files, no network, light or dark by the device's setting.

    NAME/page.html    Jinja2 template, extends common/page.html
    NAME/page.css     follows common/page.css; both are optional, like the scripts
    NAME/page.js      follows common/page.js; reads the values that are passed as `data`

Jinja2 escapes every value, so no text becomes markup. Control characters, and those that change the reading direction,
are shown by their code points.
"""

import pathlib
from collections.abc import Iterable
from typing import Any

import jinja2
from markupsafe import Markup

from keras_seq.tokenizers.base import escape_control
from keras_seq.training import run_folder

FOLDER = pathlib.Path(__file__).parent / "templates"


def render(name: str, data: Any = None, **values: Any) -> str:
    """Return templates/NAME/page.html as one string, with its style, its script and, as JSON, their `data`."""
    parts = {}
    for part, suffix in (("style", "css"), ("script", "js")):
        files = [FOLDER / folder / f"page.{suffix}" for folder in ("common", name)]
        parts[part] = Markup("\n".join(file.read_text(encoding="utf-8") for file in files if file.exists()))
    return TEMPLATES.get_template(f"{name}/page.html").render(data=data, **parts, **values)


def _visible(value):
    """Return a text with its control characters as code points; other values are unchanged."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return "".join(c if c in "\n\t" else escape_control(c) for c in value) if is_text else value


def _join(separator: str, parts: Iterable[str]) -> Markup:
    return Markup(separator).join(map(_visible, parts))


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    finalize=_visible,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
TEMPLATES.filters["mark_lines"] = lambda text: _join("<s></s>\n", text.split("\n"))  # the style makes <s> a ⏎
TEMPLATES.filters["breakable"] = lambda cell: _join("_<wbr>", cell.replace("± ", "±\xa0").split("_"))


def percent(p: float) -> str:
    """Format a probability as 37 %, 0.6 % or 0.0002 %, like `percent` in page.js."""
    return f"{100 * p:.0f} %" if p >= 0.01 else f"{100 * p:.1g} %" if p >= 1e-6 else "under 0.0001 %"


def run_label(run: pathlib.Path) -> str:
    """Return the last two parts of a run's path: TIME/RUN."""
    return "/".join(run.resolve().parts[-2:])


def describe_run(run: pathlib.Path) -> str:
    """Return "the lstm trained on docstrings", as far as config.json names the model and the corpus."""
    model, corpus = name_in_config(run, "model"), name_in_config(run, "corpus")
    return f"the {model or 'model'}{f' trained on {pathlib.PurePath(corpus).name}' if corpus else ''}"


def name_in_config(run: pathlib.Path, key: str) -> str:
    """Return the name of the "model" or the "corpus" of a run, as its config.json has it; "" without one."""
    path = run / "config.json"
    value = run_folder.read_checksummed(path).get(key) if path.is_file() else None
    return str(value.get("name", "")) if isinstance(value, dict) else ""
