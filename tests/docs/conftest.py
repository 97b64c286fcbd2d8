"""The folder of the pages, and docs/figures.py for those who import it."""

import pathlib
import sys

DOCS = pathlib.Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))  # figures and drawing
