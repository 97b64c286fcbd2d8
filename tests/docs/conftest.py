"""Make docs/make_images.py, docs/plots and docs/reference.py importable."""

import pathlib
import sys

DOCS = pathlib.Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS))
