"""constraints.txt pins what setup.cfg asks for."""

import configparser
import re

from tests.processes import ROOT


def pinned():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_line_pins_one_version():
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pinned())
    names = [canonical(line.split("==")[0]) for line in pinned()]
    assert len(set(names)) == len(names)


def test_all_that_is_asked_for_directly_is_pinned():
    """The optional backends, GPU libraries and converters aside, which are large and differ by machine."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = setup["options.extras_require"]
    asked = "\n".join([setup["options"]["install_requires"], *(extras[name] for name in ("test", "dev", "docs"))])
    wanted = {canonical(re.split(r"[>=\[]", line.strip())[0]) for line in asked.splitlines() if "%" not in line}
    own = {"", "build", "setuptools", "twine"}  # tools of whoever releases
    assert wanted - own <= {canonical(line.split("==")[0]) for line in pinned()}
