"""Turn the examples in docstrings into code blocks of the API reference.

Docstring lines that begin with `>>>` are doctests, which Markdown would show as quotations. griffe, which reads the
docstrings for mkdocstrings, loads this extension (mkdocs.yml).
"""

import re

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*(?:\n|\Z)(?:^.+(?:\n|\Z))*\n*)+", flags=re.MULTILINE)


def fence_examples(docstring):
    """Return `docstring` with each doctest in a fenced code block; blank lines between examples are kept."""
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n\n", docstring)


class Examples(griffe.Extension):
    """Apply `fence_examples` to every docstring."""

    def on_object(self, *, obj, loader, **kwargs):
        """Rewrite the docstring of `obj`, if it has one."""
        if obj.docstring:
            obj.docstring.value = fence_examples(obj.docstring.value)
