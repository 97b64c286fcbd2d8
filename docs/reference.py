"""Write the pages of the site that are not in docs/: one for each public name, each notebook, each file linked to.

A page of the reference is the signature and the docstring of what `keras_seq.PACKAGE` exports, under the name it is
imported by. griffe reads the sources; nothing is imported. On GitHub a link to a source opens it; on the site
it opens a page with the file's text, at the definition that the link's text names.
"""

import ast
import json
import pathlib
import re

import griffe

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = (
    *("runs", "layers", "models", "tokenizers", "data", "data.synthetic", "training", "evaluation", "interpretability"),
    *("baselines", "generation", "callbacks", "tracking", "saving", "pretrained", "ops"),
)
TOP_LEVEL = {
    **{"train": "runs.train", "load_run": "runs.load_run", "report": "runs.report"},
    **{"generate": "generation.generate", "score": "evaluation.score_text", "stream": "generation.stream"},
    "export": "saving.export",
}
INHERITED = {"build", "build_from_config", "call", "get_config", "from_config", "compute_output_shape"}  # Keras's
LINK = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
ARGUMENT = re.compile(r"^(\*{0,2}\w+(?:, \w+)*):( .*|$)", flags=re.MULTILINE)  # in a section such as "Call arguments"
DOCTEST = re.compile(r"(?:^>>> .*(?:\n|\Z)(?:^.+(?:\n|\Z))*\n*)+", flags=re.MULTILINE)


def fence_doctests(text: str) -> str:
    """Put the `>>>` examples of a docstring between code fences, since Markdown takes them for quotations."""
    return DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n\n", text)


def exported_names() -> dict[str, list[str]]:
    """Return the public names of `keras_seq` and of its packages, by package."""
    names = {"keras_seq": list(TOP_LEVEL)}
    for package in PACKAGES:
        path = ROOT / "keras_seq" / package.replace(".", "/") / "__init__.py"
        lists = [
            ast.literal_eval(node.value)
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        names[f"keras_seq.{package}"] = lists[0] if lists else []
    return names


def reference_page(name: str, item) -> str:
    """Return the page of a public name, as MyST Markdown.

    Args:
        name: The name it is imported by, such as `keras_seq.layers.LSTM`.
        item: What griffe knows of it.
    """
    head = f"# {name.rpartition('.')[2]}\n\n"
    if item.is_module:
        members = [m for m in item.members.values() if not m.is_alias and m.is_public and m.has_docstring]
        kinds = [describe(f"{name}.{member.name}", member) for member in members if not member.is_module]
        return head + "\n\n".join([markdown(item), *kinds])
    return head + describe(name, item)


def describe(name: str, item, fence=":::::") -> str:
    """Return the directive of Sphinx's Python domain for an item: signature, docstring, and methods of a class."""
    kind = {"class": "class", "function": "function", "attribute": "data"}[item.kind.value]
    if item.parent is not None and item.parent.is_class:
        kind = "property" if item.has_labels("property") else "method"
    signature = "" if kind in ("data", "property") else parameters(item)
    parts = [f"{fence}{{py:{kind}}} {name}{signature}", "", markdown(item)]
    if kind == "data":
        parts += ["", f"```python\n{name.rpartition('.')[2]} = {item.value}\n```"]
    if kind == "class":
        methods = [m for m in item.members.values() if m.is_public and not m.is_alias and m.has_docstring]
        methods = [m for m in methods if (m.is_function or m.has_labels("property")) and m.name not in INHERITED]
        parts += [describe(method.name, method, fence[:-1]) for method in methods]
    return "\n".join([*parts, fence])


def parameters(item) -> str:
    """Return the parameters of a function, or of a class's `__init__`, as Python writes them."""
    function = item
    if item.is_class:
        function = item.all_members.get("__init__")
        if function is None or not getattr(function, "is_function", False):
            fields = [m for m in item.members.values() if m.is_attribute and m.annotation is not None]
            parts = [f"{m.name}" + (f"={m.value}" if m.value is not None else "") for m in fields if m.is_public]
            return f"({', '.join(parts)})"
    parts, stars = [], {"variadic positional": "*", "variadic keyword": "**"}
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind and parameter.kind.value == "keyword-only" and not any(s.startswith("*") for s in parts):
            parts.append("*")
        prefix = stars.get(parameter.kind.value if parameter.kind else "", "")
        default = "" if prefix or parameter.default is None else f"={parameter.default}"
        parts.append(f"{prefix}{parameter.name}{default}")
    return f"({', '.join(parts)})"


def markdown(item) -> str:
    """Return the docstring of an item as Markdown: its text, then its sections as lists."""
    if item.docstring is None:
        return ""
    options = {"warn_unknown_params": False, "warnings": False, "returns_multiple_items": False}
    parts = []
    for section in item.docstring.parse("google", **options):
        kind, value = section.kind.value, section.value
        if kind == "text":
            parts.append(fence_doctests(value))
        elif kind == "examples":
            blocks = [text if sub.value == "text" else f"```pycon\n{text}\n```" for sub, text in value]
            parts.append("**Example**\n\n" + "\n\n".join(blocks))
        elif kind == "admonition":
            items = ARGUMENT.sub(lambda match: f"- `{match[1]}`:{match[2]}", value.contents)
            parts.append(f"**{section.title}**\n\n{fence_doctests(items)}")
        else:
            title = {"parameters": "Args", "raises": "Raises"}.get(kind, kind.capitalize())
            parts.append(f"**{title}**\n\n" + "\n".join(entry(field) for field in value))
    return "\n\n".join(parts)


def entry(field) -> str:
    """Return a parameter, return value or exception as an item of a list."""
    name = getattr(field, "name", "") or ("" if field.annotation is None else str(field.annotation))
    text = field.description.strip().replace("\n", "\n  ")
    return f"- `{name}`: {text}" if name else f"- {text}"


def package_page(package: str, module, names: list[str]) -> str:
    """Return the page of a package: its docstring and a table of what it exports, each with its first sentence."""
    rows = [f"| [`{name}`]({package}.{name}.md) | {first_sentence(module, name)} |" for name in names]
    tree = "\n".join(f"{package}.{name}" for name in names)
    table = "\n".join(["| name | |", "|---|---|", *rows])
    return f"# {package}\n\n{markdown(module)}\n\n{table}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"


def first_sentence(module, name: str) -> str:
    """Return the first line of a name's docstring, fit for a cell of a table."""
    item = resolve(module, name)
    text = item.docstring.value.partition("\n\n")[0] if item.docstring else ""
    return " ".join(text.split()).replace("|", "\\|")


def resolve(module, name: str):
    """Return what a name of a module stands for, imported or its own."""
    item = module[TOP_LEVEL[name]] if module.path == "keras_seq" else module.members[name]
    return item.final_target if item.is_alias else item


def site_path(page: pathlib.Path, link: str) -> str | None:
    """Return the path in the repository of a file outside the site that a page links to; None for pages of docs/."""
    path = (page.parent / link).resolve()
    inside = ROOT / "docs" in path.parents and path.suffix in (".md", ".png", ".svg")
    return path.relative_to(ROOT).as_posix() if path.is_file() and path.is_relative_to(ROOT) and not inside else None


def redirect(text: str, page: pathlib.Path) -> str:
    """Point the links of a page that leave docs/ to the site's pages with these files."""

    def turn(match):
        label, link, fragment = match.groups()
        path = site_path(page, link)
        if path is None:
            local = (page.parent / link).resolve()
            moved = page.parent != ROOT / "docs" and local.is_file()
            return f"[{label}](/{local.relative_to(ROOT / 'docs').as_posix()}{fragment or ''})" if moved else match[0]
        name = re.fullmatch(r"`(?:\w+\.)?(\w+)`", label)
        if name and path.endswith(".py") and name[1] in definitions(path).values():
            return f"[{label}](#{anchor(path, name[1])})"
        return f"[{label}](/{source_page(path)}{fragment or ''})"

    return "".join(part if n % 2 else LINK.sub(turn, part) for n, part in enumerate(CODE.split(text)))


def source_page(path: str) -> str:
    """Return the site's page for a file of the repository."""
    return f"generated/source/{path}" if path.endswith((".md", ".ipynb")) else f"generated/source/{path}.md"


def anchor(path: str, name: str) -> str:
    """Return the site-wide label of a definition in a file."""
    return f"{path}:{name}" if name == name.lower() else f"{path}:{name}:class".lower()  # Sphinx ignores case


def definitions(path: str) -> dict[int, str]:
    """Return the names that a Python file defines at its top level, by the index of their first line."""
    names = {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1] = node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.lineno - 1] = node.targets[0].id
    return names


def source_text(path: str) -> str:
    """Return the page of a file: text and notebooks as they are; Python in pieces, each definition under an anchor."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".ipynb"):
        notebook = json.loads(text)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = redirect("".join(cell["source"]), ROOT / path)
        return json.dumps(notebook)
    if path.endswith(".md"):
        return redirect(text, ROOT / path)
    if not path.endswith(".py"):
        return f"# {path}\n\n`````text\n{text}`````\n"
    lines, names = text.splitlines(keepends=True), definitions(path)
    starts = sorted({0, *names})
    parts = [f"# {path}"]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        label = f"({anchor(path, names[start])})=\n\n" if start in names else ""
        parts.append(f"{label}`````python\n{''.join(lines[start:end]).rstrip()}\n`````")
    return "\n\n".join(parts) + "\n"


def markdown_text(page: pathlib.Path) -> str:
    """Return the Markdown of a page; of a notebook, that of its text."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    return "\n\n".join("".join(c["source"]) for c in json.loads(text)["cells"] if c["cell_type"] == "markdown")


def write_pages(folder: pathlib.Path) -> None:
    """Write all generated pages into `folder`."""
    package = griffe.load("keras_seq", search_paths=[ROOT], allow_inspection=False)
    pages = {}
    for name, names in exported_names().items():
        module = package if name == "keras_seq" else package[name.partition(".")[2]]
        pages[f"reference/{name}.md"] = package_page(name, module, names)
        pages |= {f"reference/{name}.{n}.md": reference_page(f"{name}.{n}", resolve(module, n)) for n in names}
    visited = {path.name for path in ROOT.glob("*.md")} - {"README.md"}
    visited |= {path.relative_to(ROOT).as_posix() for path in ROOT.glob("notebooks/*.ipynb")}
    pages |= {source_page(path).removeprefix("generated/"): source_text(path) for path in visited}
    queue = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / path for path in visited)]
    while queue:
        page = queue.pop()
        prose = "".join(CODE.split(markdown_text(page))[::2])
        for path in {site_path(page, match[2]) for match in LINK.finditer(prose)} - {None} - visited:
            visited.add(path)
            pages[source_page(path).removeprefix("generated/")] = "---\norphan: true\n---\n\n" + source_text(path)
            if path.endswith(".md"):
                queue.append(ROOT / path)
    for path, text in pages.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:  # an unchanged page is not built again
            file.write_text(text, encoding="utf-8")
