"""Draw the images of the documentation pages into docs/images, in under a minute.

python docs/make_images.py                      all pages
python docs/make_images.py rnn-lstm             images of docs/rnn-lstm.md only
python docs/make_images.py --measure            repeat the measurements in docs/results first: a few minutes more
"""

import importlib
import json
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import matplotlib.pyplot as plt
from plots import RESULTS, STYLE

DOCS = pathlib.Path(__file__).resolve().parent
IMAGES = DOCS / "images"


def pages():
    """Return the names of the pages that have plots."""
    modules = sorted(path.stem for path in (DOCS / "plots").glob("*.py") if path.stem != "__init__")
    return [module.replace("_", "-") if not (DOCS / f"{module}.md").exists() else module for module in modules]


def plot_module(page):
    """Import the module with the plots of a page."""
    return importlib.import_module("plots." + page.replace("-", "_"))


def save_image(page, name, folder=IMAGES):
    """Save one plot of a page into `folder` and return the path of the image."""
    keras.utils.set_random_seed(0)
    path = folder / f"{page}-{name}"
    with plt.rc_context(STYLE):
        figure = plot_module(page).PLOTS[name]()
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return path


def save_measurement(page, name, folder=RESULTS):
    """Run one measurement of a page, write its result into `folder` as JSON and return the path."""
    path = folder / f"{page}-{name}"
    keras.utils.set_random_seed(0)
    result = plot_module(page).MEASUREMENTS[name]()
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def main(arguments):
    """Save the images of the pages named in `arguments`, or of all pages."""
    chosen = [argument for argument in arguments if argument != "--measure"]
    unknown = set(chosen) - set(pages())
    if unknown:
        raise SystemExit(f"no plots for {', '.join(sorted(unknown))}; expected one of {', '.join(pages())}")
    for page in chosen or pages():
        paths = []
        if "--measure" in arguments:
            paths += [save_measurement(page, name) for name in getattr(plot_module(page), "MEASUREMENTS", {})]
        paths += [save_image(page, name) for name in plot_module(page).PLOTS]
        for path in paths:
            print(f"{path.relative_to(DOCS.parent)}  {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
