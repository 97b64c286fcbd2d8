"""The process for what files and users give: it outlives Ctrl-C, and another one is started once it has ended."""

import os

import pytest

from keras_seq.bounded_process import _PROCESS, render_chat_template


def rendered():
    return render_chat_template("{{ messages[0] }}", ["a"], False, {})


@pytest.mark.skipif(not hasattr(os, "getsid"), reason="needs sessions")
def test_ctrl_c_is_for_the_parent_alone():
    assert rendered() == "a"
    assert os.getsid(_PROCESS.process.pid) != os.getsid(0)


def test_one_that_has_ended_is_started_again():
    rendered()
    _PROCESS.process.kill()
    _PROCESS.process.wait()
    assert rendered() == "a"
