"""For the reference: the examples in docstrings become blocks of code.

A docstring's `>>>` lines are for doctest; Markdown takes them for a quotation. griffe, which reads the docstrings for
mkdocstrings, calls this extension (mkdocs.yml).
"""

import re

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*(?:\n|\Z)(?:^.+(?:\n|\Z))*\n*)+", flags=re.MULTILINE)


def fenced(docstring):
    """The same text with its examples between fences, a blank line between two of them kept."""
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n\n", docstring)


class Examples(griffe.Extension):
    """`fenced` on every docstring."""

    def on_object(self, *, obj, loader, **kwargs):
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
