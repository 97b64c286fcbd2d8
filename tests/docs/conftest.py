"""Make docs/figures.py, docs/plots and the MkDocs hooks importable."""

import pathlib
import sys

DOCS = pathlib.Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))
