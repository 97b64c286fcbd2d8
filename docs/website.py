"""Generate the pages of the site that are not in docs/: an API reference per package, and the linked source files.

On GitHub a link such as ../keras_seq/layers/lstm.py opens the file. On the site it opens a page with the text of the
file, at the line that defines the name in the link's text. MkDocs calls the functions whose names begin with on_
(mkdocs.yml).
"""

import ast
import json
import pathlib
import re

from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[1]
ORDER = (
    *("layers", "models", "tokenizers", "data", "baselines", "training", "evaluation", "tracking"),
    *("callbacks", "generation", "saving", "kernels"),
)
LINK = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")


def packages():
    """Return the packages of keras_seq in reading order; those missing from ORDER come last."""
    names = [path.parent.name for path in (ROOT / "keras_seq").glob("*/__init__.py")]
    return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def linked_file(link):
    """Return the repository path that a link of a page in docs/ refers to, or None for a page of the site."""
    path = (ROOT / "docs" / link).resolve()
    outside = ROOT / "docs" not in path.parents or path.suffix in (".py", ".json")
    return path.relative_to(ROOT).as_posix() if outside and path.is_relative_to(ROOT) else None


def source_page(path):
    """Return the page of the site that shows the text of a file."""
    return f"source/{path}.md"


def line_anchor(path, name):
    """Return the anchor of the line of a Python file that defines a name, or an empty string."""
    if not path.endswith(".py"):
        return ""
    for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
        if re.match(rf" *(?:(?:def|class) {re.escape(name)}\b|{re.escape(name)} = )", line):
            return f"#__line-0-{number}"
    return ""


def redirect_links(markdown):
    """Return `markdown` with the links that leave docs/ pointing to pages of the site."""

    def redirect(match):
        text, link, fragment = match.groups()
        path = linked_file(link)
        return match[0] if path is None else f"[{text}]({source_page(path)}{fragment or ''})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if n % 2 else LINK.sub(redirect, part) for n, part in enumerate(parts))


def reference(package):
    """Return the reference page of a package: its docstring and names, then what it exports of each module."""
    tree = ast.parse((ROOT / "keras_seq" / package / "__init__.py").read_text(encoding="utf-8"))
    exports = [
        (node.module, [alias.name for alias in node.names]) for node in tree.body if isinstance(node, ast.ImportFrom)
    ]
    defined = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    parts = [f"# keras_seq.{package}", directive(f"keras_seq.{package}", defined, heading=False)]
    for module, names in exports:
        if module == f"keras_seq.{package}":  # modules
            parts += [directive(f"{module}.{name}") for name in names]
        elif module.startswith(f"keras_seq.{package}."):
            parts.append(directive(module, names))
    return "\n\n".join(parts) + "\n"


def directive(name, members=True, heading=True):
    """Return the mkdocstrings directive for a module and its `members`; `True` selects all public ones."""
    options = {"members": members, "show_root_heading": heading, "heading_level": 2, "show_root_full_path": True}
    return f"::: {name}\n    options: {json.dumps(options)}"


def on_config(config):
    """Add to the navigation the pages of docs/ that mkdocs.yml does not name, and the reference."""
    named = {page for _, page in leaves(config.nav)}
    others = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    if others:
        config.nav.append({"More": others})
    config.nav.append({"Reference": [{name: f"reference/{name}.md"} for name in packages()]})
    return config


def leaves(nav, title=None):
    """Yield `(title or None, page)` for every page of a navigation."""
    if isinstance(nav, str):
        yield title, nav
    elif isinstance(nav, dict):
        for name, part in nav.items():
            yield from leaves(part, name)
    else:
        for part in nav:
            yield from leaves(part)


def on_files(files, config):
    """Add the reference pages, and a page for each file that is linked to."""
    for name in packages():
        files.append(File.generated(config, f"reference/{name}.md", content=reference(name)))
    linked = set()
    for file in files.documentation_pages():
        linked |= {linked_file(match[1]) for match in LINK.findall(file.content_string)} - {None}
    for path in sorted(linked):
        if (ROOT / path).is_file():
            text = (ROOT / path).read_text(encoding="utf-8")
            fence = "`" * (max(3, *(len(run) + 1 for run in re.findall(r"`+", text))))
            language = {".py": "python", ".md": "markdown"}.get(pathlib.Path(path).suffix, "text")
            page = f"---\nsearch:\n  exclude: true\n---\n# {path}\n\n{fence}{language}\n{text}{fence}\n"
            file = File.generated(config, source_page(path), content=page, inclusion=InclusionLevel.NOT_IN_NAV)
            files.append(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Redirect the links of a page of docs/."""
    return markdown if page.file.src_uri.startswith(("source/", "reference/")) else redirect_links(markdown)


def on_page_content(html, page, config, files):
    """Add line anchors to links to names; MkDocs would report them in Markdown, where it knows no code lines."""

    def add_anchor(match):
        return f'{match[1]}{line_anchor(match[2], match[3])}"><code>{match[3]}</code>'

    return re.sub(r'(<a href="source/([\w/.-]+)\.html)"><code>(?:\w+\.)?(\w+)</code>', add_anchor, html)
