"""How bad input has to end: as one sentence that names what is wrong, before anything is built or written."""

import re

import pytest


def one_sentence(said) -> bool:
    """Whether a message is a single line that ends as a sentence, and says something."""
    return len(said) > 20 and said.endswith(".") and "\n" not in said and "Traceback" not in said


@pytest.fixture
def refused():
    """Calls something; it has to raise a ValueError of one sentence that has all the words. Returns the sentence."""

    def refused(call, *words):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - what it says is checked below
            call()
        said = str(caught.value)
        assert one_sentence(said), said
        for word in words:
            assert re.search(word, said), said
        return said

    return refused


@pytest.fixture
def ends(capsys, tmp_path, monkeypatch):
    """Runs a command line in an empty folder: status 2, a message on stderr, nothing else, nothing written."""

    def ends(main, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "2000")
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        assert stop.value.code == 2
        assert "For full helptext" in output.err or one_sentence(output.err.removesuffix("\n")), output.err
        assert output.out == ""
        assert sorted(tmp_path.rglob("*")) == before
        return output.err

    return ends
