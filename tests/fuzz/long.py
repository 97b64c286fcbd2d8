"""Fuzzes one reader of files for as long as wanted, guided by what it covers (atheris, libFuzzer).

    pip install -e ".[fuzz]"
    python -m tests.fuzz.long tokenizer -max_total_time=60          or another name of TARGETS in targets.py

Where atheris has no wheel, `pytest -m slow tests/fuzz` does what can be done without it.
"""

import pathlib
import sys
import tempfile


def main():
    """The command line."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install -e '.[fuzz]', or pytest -m slow tests/fuzz.")
    with atheris.instrument_imports(include=["keras_seq", "experiments", "json", "zipfile"]):
        from tests.fuzz.targets import TARGETS, survives
    name, *options = sys.argv[1:] or ["help"]
    if name not in TARGETS:
        sys.exit(f"usage: python -m tests.fuzz.long {{{','.join(TARGETS)}}} [options of libFuzzer]")
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-"))
    for number, seed in enumerate(TARGETS[name][1]):
        (folder / f"seed-{number}").write_bytes(seed)
    print(f"Files that led further are kept in {folder}", flush=True)
    atheris.Setup([sys.argv[0], *options, str(folder)], lambda data: survives(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
