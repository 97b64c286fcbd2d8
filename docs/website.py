"""What the site has beside docs/: a page of reference for each package, and the files that the pages link to.

On GitHub a link like ../keras_seq/layers/lstm.py opens the file. On the site it opens a page with the file's text, at
the line that defines the name in the link's text. MkDocs calls the functions whose names begin with on_ (mkdocs.yml).
"""

import ast
import json
import pathlib
import re

from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[1]
ORDER = ("text", "layers", "models", "training", "callbacks", "generation", "kernels")
LINK = re.compile(r"\[((?:[^][]|\[[^][]*\])*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")


def packages():
    """The packages of keras_seq, in reading order; one that the order does not name comes last."""
    names = [path.parent.name for path in (ROOT / "keras_seq").glob("*/__init__.py")]
    return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def target(link):
    """The file in the repository that a link of a page of docs/ means, or None where it is a page of the site."""
    path = (ROOT / "docs" / link).resolve()
    outside = ROOT / "docs" not in path.parents or path.suffix in (".py", ".json")
    return path.relative_to(ROOT).as_posix() if outside and path.is_relative_to(ROOT) else None


def source_page(path):
    """The page of the site that holds the text of a file."""
    return f"source/{path}.md"


def line_of(path, name):
    """`#...`, the line of a Python file that defines a name; empty where there is none."""
    if not path.endswith(".py"):
        return ""
    for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
        if re.match(rf" *(?:(?:def|class) {re.escape(name)}\b|{re.escape(name)} = )", line):
            return f"#__line-0-{number}"
    return ""


def redirected(markdown):
    """A page's text with the links that leave docs/ turned to pages of the site."""

    def turn(match):
        text, link, fragment = match.groups()
        path = target(link)
        return match[0] if path is None else f"[{text}]({source_page(path)}{fragment or ''})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if n % 2 else LINK.sub(turn, part) for n, part in enumerate(parts))


def reference(package):
    """The page of a package: its own docstring and names, then each module with what the package takes from it."""
    tree = ast.parse((ROOT / "keras_seq" / package / "__init__.py").read_text(encoding="utf-8"))
    taken = [
        (node.module, [alias.name for alias in node.names]) for node in tree.body if isinstance(node, ast.ImportFrom)
    ]
    own = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    parts = [f"# keras_seq.{package}", directive(f"keras_seq.{package}", own, heading=False)]
    for module, names in taken:
        if module == f"keras_seq.{package}":  # modules
            parts += [directive(f"{module}.{name}") for name in names]
        elif module.startswith(f"keras_seq.{package}."):
            parts.append(directive(module, names))
    return "\n\n".join(parts) + "\n"


def directive(name, members=True, heading=True):
    """What mkdocstrings turns into the docstrings of a module and of its members; `True` for all public ones."""
    options = {"members": members, "show_root_heading": heading, "heading_level": 2, "show_root_full_path": True}
    return f"::: {name}\n    options: {json.dumps(options)}"


def on_config(config):
    """The navigation: pages of docs/ that mkdocs.yml does not name come last, and the reference."""
    named = {page for _, page in leaves(config.nav)}
    others = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    if others:
        config.nav.append({"More": others})
    config.nav.append({"Reference": [{name: f"reference/{name}.md"} for name in packages()]})
    return config


def leaves(nav, title=None):
    """The pages of a navigation, each with its title or None."""
    if isinstance(nav, str):
        yield title, nav
    elif isinstance(nav, dict):
        for name, part in nav.items():
            yield from leaves(part, name)
    else:
        for part in nav:
            yield from leaves(part)


def on_files(files, config):
    """The pages of reference, and those of the files that are linked to."""
    for name in packages():
        files.append(File.generated(config, f"reference/{name}.md", content=reference(name)))
    linked = set()
    for file in files.documentation_pages():
        linked |= {target(match[1]) for match in LINK.findall(file.content_string)} - {None}
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
    """Links go to pages of the site."""
    return markdown if page.file.src_uri.startswith(("source/", "reference/")) else redirected(markdown)


def on_page_content(html, page, config, files):
    """Links to a name go to its line. Only here, for MkDocs does not know the lines of highlighted code as anchors."""

    def turn(match):
        return f'{match[1]}{line_of(match[2], match[3])}"><code>{match[3]}</code>'

    return re.sub(r'(<a href="source/([\w/.-]+)\.html)"><code>(?:\w+\.)?(\w+)</code>', turn, html)
