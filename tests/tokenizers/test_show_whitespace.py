import string

from keras_seq.tokenizers.text import show_whitespace


def test_what_cannot_be_seen_is_shown():
    assert show_whitespace("a b\n\tc\x00\u202e") == "a·b⏎⇥c⟨U+0000⟩⟨U+202E⟩"
    assert show_whitespace(string.ascii_letters + "é猫") == string.ascii_letters + "é猫"
