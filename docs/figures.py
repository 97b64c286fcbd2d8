"""Draws the pictures of the pages into docs/pictures. All together take under a minute.

python docs/figures.py                      all of them
python docs/figures.py rnn-lstm             those of docs/rnn-lstm.md
python docs/figures.py --measure            measures anew first, into docs/results: a few minutes more
"""

import importlib
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib.pyplot as plt
from drawing import RESULTS, STYLE

DOCS = pathlib.Path(__file__).resolve().parent
PICTURES = DOCS / "pictures"


def pages():
    """The names of the pages that have drawings."""
    modules = sorted(path.stem for path in (DOCS / "drawing").glob("*.py") if path.stem != "__init__")
    return [module.replace("_", "-") if not (DOCS / f"{module}.md").exists() else module for module in modules]


def drawings(page):
    """The module that draws for a page."""
    return importlib.import_module("drawing." + page.replace("-", "_"))


def draw(page, name, folder=PICTURES):
    """Draws one picture of a page and returns its path."""
    keras.utils.set_random_seed(0)
    path = folder / f"{page}-{name}"
    with plt.rc_context(STYLE):
        figure = drawings(page).FIGURES[name]()
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return path


def measure(page, name, folder=RESULTS):
    """Takes one measurement of a page and returns the path of its result."""
    path = folder / f"{page}-{name}"
    keras.utils.set_random_seed(0)
    result = drawings(page).MEASURES[name]()
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def main(arguments):
    """Draws the pictures of the chosen pages, of all if none is."""
    chosen = [argument for argument in arguments if argument != "--measure"]
    unknown = set(chosen) - set(pages())
    if unknown:
        raise SystemExit(f"no drawings for {', '.join(sorted(unknown))}; there are some for {', '.join(pages())}")
    for page in chosen or pages():
        paths = []
        if "--measure" in arguments:
            paths += [measure(page, name) for name in getattr(drawings(page), "MEASURES", {})]
        paths += [draw(page, name) for name in drawings(page).FIGURES]
        for path in paths:
            print(f"{path.relative_to(DOCS.parent)}  {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
