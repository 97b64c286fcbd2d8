import string

from keras_seq.text.visible import visible


def test_what_cannot_be_seen_is_shown():
    assert visible("a b\n\tc\x00\u202e") == "a·b⏎⇥c⟨U+0000⟩⟨U+202E⟩"
    assert visible(string.ascii_letters + "é猫") == string.ascii_letters + "é猫"
