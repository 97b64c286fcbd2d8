import io
import json
import re

import pytest

from keras_seq import pretrained
from keras_seq.commands import generate
from keras_seq.generation import TextGenerator
from keras_seq.models import LlamaConfig, LSTMConfig
from keras_seq.saving.keras_file import save_model
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordPieceTokenizer, WordTokenizer
from keras_seq.training import load_run

PROMPT = ["--prompt", "The ", "--max-new-tokens", "60", "--top-k", "40"]


@pytest.fixture
def written(smoke, capsys):
    """What the script writes, without its last line break."""

    def written(*options, name="lstm"):
        generate.main([str(smoke.folder / f"{name}-seed0"), *map(str, options)])
        return capsys.readouterr().out.removesuffix("\n")

    return written


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_it_writes_the_prompt_and_max_new_tokens_characters(written, smoke, name):
    texts = [written(*PROMPT, "--seed", seed, name=name) for seed in (1, 1, 2)]
    assert all(text.startswith("The ") and len(text) == 64 for text in texts)
    assert texts[0] == texts[1] != texts[2]
    generator = TextGenerator(*load_run(smoke.folder / f"{name}-seed0"))
    assert texts[0] == generator("The ", 60, temperature=0.8, top_k=40, seed=1)


@pytest.mark.parametrize(
    ("tokenizer", "prompt"),
    [
        (BytePairTokenizer([]), "\n"),
        (CharacterTokenizer("\nab"), "\n"),
        (CharacterTokenizer("ab"), "a"),
        (CharacterTokenizer("ab", oov_token="[UNK]"), "a"),
        (WordTokenizer(["[UNK]", "be", "\n"]), "\n"),
        (WordTokenizer(["[UNK]", "be"]), "be"),
        (WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##e", "be"]), "be"),
        (CharacterTokenizer("["), "["),
    ],
)
def test_the_prompt_is_a_line_break_if_the_tokenizer_keeps_it(tokenizer, prompt):
    assert generate.default_prompt(tokenizer) == prompt


def test_the_prompt_can_come_from_standard_input(written, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("The "))
    assert written("--prompt", "-", *PROMPT[2:]) == written(*PROMPT)


def test_every_line_is_a_prompt_until_an_empty_one(written, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("The \n\u732b\nreturn\n\nif\n"))
    printed = written("--interactive", *PROMPT[2:], "--seed", 5, "--out", tmp_path / "texts.txt")
    expected = [written("--prompt", text, *PROMPT[2:], "--seed", seed) for text, seed in (("The ", 5), ("return", 7))]
    assert printed == "\n".join(expected)
    assert (tmp_path / "texts.txt").read_text(encoding="utf-8") == "\n\n".join(expected) + "\n"


def test_a_pipe_ends_an_interactive_session_and_a_wrong_prompt_does_not(smoke, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("\u732b\nThe "))
    generate.main([str(smoke.folder / "lstm-seed0"), "--interactive", "--max-new-tokens", "0"])
    out, err = capsys.readouterr()
    assert out == "The \n"
    assert err == "The model does not know '\u732b' (U+732B): change the text, or add --unknown drop.\n"


def test_a_line_that_is_not_utf8_is_refused_and_the_session_goes_on(smoke, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The \n\xff\nif\n"), "utf-8"))
    options = ["--interactive", "--max-new-tokens", "0", "--out", str(tmp_path / "texts.txt")]
    generate.main([str(smoke.folder / "lstm-seed0"), *options])
    assert (tmp_path / "texts.txt").read_text() == "The \n\nif\n"
    assert "U+DCFF" in capsys.readouterr().err


def test_what_a_session_has_written_is_kept_when_it_ends_in_an_error(smoke, monkeypatch, tmp_path, fails):
    prompts = iter(["The ", ValueError("no more")])

    def read(_):
        if isinstance(prompt := next(prompts), ValueError):
            raise prompt
        return prompt

    monkeypatch.setattr("builtins.input", read)
    options = "--interactive", "--max-new-tokens", "0", "--out", tmp_path / "texts.txt"
    assert "no more" in fails(generate.main, smoke.folder / "lstm-seed0", *options)
    assert (tmp_path / "texts.txt").read_text() == "The \n"


def test_unknown_characters_can_be_left_out(written):
    assert written("--prompt", "\u732bThe\u00fc ", *PROMPT[2:], "--unknown", "drop") == written(*PROMPT)


def test_several_texts_are_written_to_a_file_too(written, tmp_path):
    printed = written(*PROMPT, "--num-samples", 3, "--out", tmp_path / "texts.txt")
    texts = (tmp_path / "texts.txt").read_text(encoding="utf-8")
    assert texts.count("The ") >= 3
    assert printed.count("--- ") >= 3
    assert texts.startswith(written(*PROMPT))


def test_without_a_prompt_a_line_begins(written):
    assert written("--max-new-tokens", 5).startswith("\n")


def test_it_ends_before_a_stop_text(written):
    whole = written(*PROMPT)
    stop = whole[30:34]
    assert written(*PROMPT, "--stop-strings", stop) == whole[: whole.index(stop, 4)]


def test_it_can_search(written, smoke):
    generator = TextGenerator(*load_run(smoke.folder / "lstm-seed0"))
    options = ["--prompt", "The ", "--max-new-tokens", 12, "--method"]
    assert written(*options, "beam", "--num-beams", 3) == generator.beam("The ", 12, num_beams=3)
    assert written(*options, "contrastive", "--alpha", 0.9) == generator.contrastive("The ", 12, alpha=0.9)


def test_it_writes_what_is_asked_for(written, tmp_path):
    pytest.importorskip("outlines_core")
    numbers = written(*PROMPT, "--regex", "[0-9]{3}", "--num-samples", 3)
    assert len(re.findall(r"^The \d{3}$", numbers, flags=re.MULTILINE)) == 3
    assert written(*PROMPT, "--choices", "cat", "dog") in ("The cat", "The dog")
    (tmp_path / "schema.json").write_text(
        '{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}'
    )
    assert json.loads(written(*PROMPT, "--json-schema", tmp_path / "schema.json")[4:])["a"] in (True, False)


@pytest.mark.rare
def test_a_draft_changes_no_greedy_text(tmp_path, capsys, fails):
    tokenizer = CharacterTokenizer.from_text("The cat sat.")
    tokenizers = {"model": tokenizer, "draft": tokenizer, "other": CharacterTokenizer.from_text("The dog sat")}
    for name, each in tokenizers.items():
        (tmp_path / name).mkdir()
        each.save(tmp_path / name / "tokenizer.json")
        config = LSTMConfig(embedding_dim=4, units=6 if name == "model" else 3)
        save_model(config.build_model(each.vocabulary_size), tmp_path / name / "model.keras")
    options = [str(tmp_path / "model"), "--prompt", "The ", "--max-new-tokens", "12", "--temperature", "0"]
    generate.main(options)
    plain = capsys.readouterr().out
    assert len(plain) == 17
    generate.main([*options, "--draft", str(tmp_path / "draft"), "--num-draft-tokens", "2"])
    output = capsys.readouterr()
    assert output.out == plain
    assert re.fullmatch(r"12 tokens in \d+ passes of the model\n", output.err)
    assert "its tokens differ" in fails(generate.main, *options, "--draft", tmp_path / "other")


def test_in_a_process_of_its_own_it_says_nothing_but_the_text(smoke, python, written):
    process = python(
        "-m", "keras_seq", "generate", smoke.folder / "lstm-seed0", "--prompt", "if", "--max-new-tokens", 20
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout == written("--prompt", "if", "--max-new-tokens", 20) + "\n"


@pytest.mark.parametrize(
    ("run", "options", "names"),
    [
        ("nowhere", "", "nowhere does not exist"),
        (".", "", "-seed0"),
        ("no-tokenizer", "", "tokenizer.json is missing"),
        ("torn-tokenizer", "", "tokenizer.json"),
        ("torn-model", "", "model.keras"),
        ("lstm-seed0", "--prompt=", "is empty"),
        ("lstm-seed0", "--prompt=猫", "'猫' (U+732B): change the text, or add --unknown drop."),
        ("lstm-seed0", "--prompt=猫 --unknown=drop", "is empty"),
        ("lstm-seed0", "--prompt=a --interactive", "--prompt a"),
        ("lstm-seed0", "--out=nowhere/a.txt", "nowhere"),
        ("lstm-seed0", "--out=.", "--out ."),
        ("lstm-seed0", "--method=beam --num-samples=2", "--method beam"),
        ("lstm-seed0", "--method=contrastive --alpha=2", "--alpha 2"),
        ("lstm-seed0", "--choices a --regex=b", "expected one of them"),
        ("lstm-seed0", "--regex=b --method=beam", "--method sample"),
        ("lstm-seed0", "--regex=(", "cannot be used"),
        ("lstm-seed0", "--json-schema=nowhere.json", "nowhere.json"),
        ("lstm-seed0", "--num-beams=8", "--num-beams: it has no effect here; expected --method beam with it"),
        ("lstm-seed0", "--method=beam --temperature=0.2", "--method sample with it"),
        ("lstm-seed0", "--method=contrastive --seed=2", "--method sample with it"),
        ("lstm-seed0", "--alpha=0.5", "--method contrastive with it"),
        ("lstm-seed0", "--num-draft-tokens=2", "--draft with it"),
        ("lstm-seed0", "--draft=nowhere", "nowhere"),
        ("lstm-seed0", "--draft=nowhere --num-samples=2", "--num-samples 1"),
        ("lstm-seed0", "--draft=nowhere --num-draft-tokens=0", "--num-draft-tokens 0"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(smoke, fails, copied, run, options, names):
    if "-tokenizer" in run or "-model" in run:
        folder = copied(smoke.folder / "lstm-seed0", run)
        path = folder / ("tokenizer.json" if "tokenizer" in run else "model.keras")
        if run.startswith("torn"):
            path.write_bytes(path.read_bytes()[:40])
        else:
            path.unlink()
    else:
        folder = smoke.folder / run
    sentence = fails(generate.main, folder, *options.split())
    assert names in sentence


def test_without_a_run_it_asks_for_one(fails):
    assert "Missing from keras-seq generate: RUN" in fails(generate.main)


TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture
def chat_folder(tmp_path):
    """A Hugging Face folder of a chat model, whose characters are its tokens."""
    tokenizer = CharacterTokenizer.from_text("<assistant><user>why? because")
    config = LlamaConfig(16, num_layers=1, num_heads=2, feed_forward_dim=16, context_length=128)
    pretrained.save(config.build_model(tokenizer.vocabulary_size), tmp_path / "chat", tokenizer)
    path = tmp_path / "chat" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": TEMPLATE}))
    return tmp_path / "chat"


@pytest.mark.rare
def test_a_chat_model_gets_its_template_and_prints_only_its_answer(chat_folder, capsys):
    options = [str(chat_folder), "--chat", "--prompt", "why?", "--max-new-tokens", "20", "--seed", "3"]
    loaded = pretrained.load(chat_folder)
    prompt = "<user>why?<assistant>"
    generator = TextGenerator(loaded.model, loaded.tokenizer.without_special_tokens())
    answer = generator(prompt, 20, temperature=0.8, seed=3).removeprefix(prompt)
    assert len(answer) == 20
    generate.main(options)
    assert capsys.readouterr().out == f"{answer}\n"
    # a generated id ends the answer where generation_config.json says so
    (stop,) = loaded.tokenizer.encode(answer[7])
    (chat_folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [int(stop)]}))
    generate.main(options)
    assert capsys.readouterr().out.removesuffix("\n") in (cut := answer[: answer.index(answer[7])], cut + answer[7])
    generate.main([*options, "--num-samples", "2"])
    printed = capsys.readouterr().out
    assert "--- 2 of 2 ---" in printed
    assert "<user>" not in printed


def test_chat_needs_a_template(chat_folder, fails):
    assert "expected --num-samples 1, no --stop-strings and no --chat" in fails(
        generate.main, chat_folder, "--chat", "--method", "beam"
    )
    path = chat_folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": None}))
    assert "has no chat template; expected the folder of a chat model" in fails(generate.main, chat_folder, "--chat")
