"""Export a trained model to a format that does not need keras_seq.

    keras-seq export RUN --to onnx          # with the state as inputs and outputs: onnxruntime, in the browser too
    keras-seq export RUN --to litert        # the same for LiteRT (TensorFlow Lite): phones, small computers
    keras-seq export RUN --to onnx --quantization int8    # weights in 8 bits
    keras-seq export RUN [RUN] --to page    # one HTML file in which the models read and write
    keras-seq export RUN --to torch         # a program of torch.export
    keras-seq export RUN --to saved_model   # text in, text out, on plain TensorFlow without keras_seq
    keras-seq export RUN --to keras         # one .keras file from texts to logits, including the tokenizer
    keras-seq export RUN --to hugging_face  # a gpt2, llama, mamba, mamba2 or qwen3_5 for transformers

Time: seconds.

RUN is the folder of a finished run, of any backend. `keras-seq generate` and `score` read an ONNX or LiteRT file as
they read a run. How the others are used is printed when they are written.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

from keras_seq import pretrained
from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import check_options, command_line
from keras_seq.files import atomic_write
from keras_seq.runs.finished_run import cost_of_rounding, write_living_page
from keras_seq.saving.exporter import export
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.characters import with_text_input
from keras_seq.training import load_run
from keras_seq.training.run_folder import within

FILE_NAMES = {
    **{"onnx": "model.onnx", "litert": "model.tflite", "torch": "step.pt2", "saved_model": "saved_model"},
    **{"page": "page.html", "keras": "text_to_logits.keras", "hugging_face": "hugging_face"},
}
USES = {  # how to use what was written
    "onnx": "keras-seq generate {path}    # docs/exports.md: without keras_seq, and in JavaScript",
    "litert": "keras-seq generate {path}    # docs/exports.md: without keras_seq",
    "page": "open {path} in a browser; it needs no network, and can be sent by mail",
    "torch": "step = torch.export.load({path!r}).module()    # step(ids, state) -> logits, state",
    "saved_model": "model = tf.saved_model.load({path!r}); "
    "text = model.generate('The ', tf.constant(200, tf.int64), 0.8, tf.constant(1, tf.int64))    "
    "# 200 characters, temperature 0.8, seed 1",
    "keras": "import keras_seq; keras.models.load_model({path!r})(tf.constant(['The end']))    # logits [1, T, V]",
    "hugging_face": "transformers.AutoModelForCausalLM.from_pretrained({path!r})",
}


@dataclasses.dataclass(frozen=True)
class ExportConfig:
    """Export a trained model."""

    runs: Annotated[
        tuple[pathlib.Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN", help="Folder of a finished run; a page may have two."),
    ]
    to: Literal[tuple(FILE_NAMES)] = "saved_model"
    """Format to export to."""
    out: pathlib.Path | None = None
    """Path to write to; beside model.keras by default."""
    quantization: Literal["int8", "none"] | None = None
    """int8: weights in 8 bits, in ONNX, LiteRT and a page, where it is the default; none: in float32."""
    batch_size: int = 1
    """Texts that a LiteRT file reads at a time."""
    lengths: tuple[int, ...] | None = None
    """Numbers of tokens of the passes in a LiteRT file, beside its step of one token; by default 64, none in int8."""

    def __post_init__(self):
        check_options(self, batch_size=1)
        if (shortest := min(self.lengths or (1,))) < 1:
            raise ValueError(f"--lengths {shortest}: expected at least 1.")
        if self.quantization == "int8" and self.to not in ("onnx", "litert", "page"):
            raise ValueError(f"--quantization {self.quantization}: expected --to onnx, litert or page.")
        if self.to != "litert" and (self.lengths is not None or self.batch_size != 1):
            raise ValueError("--lengths and --batch-size are of a LiteRT file: expected them with --to litert.")
        expected = {1: "one", 2: "one or two"}[limit := 2 if self.to == "page" else 1]
        if not 1 <= len(self.runs) <= limit:
            runs = " ".join(map(str, self.runs))
            raise ValueError(f"RUN {runs}: {len(self.runs)} folders of runs; expected {expected} with --to {self.to}.")


@exit_with_message("keras-seq export")
def main(arguments: Sequence[str]):
    """Run the command line."""
    config = command_line(ExportConfig, "keras-seq export", __doc__, arguments)
    run, quantization = config.runs[0], None if config.quantization == "none" else config.quantization
    out = config.out or within(run, run / FILE_NAMES[config.to])
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: the folder {out.parent} does not exist.")
    if config.to == "page":
        write_living_page(config.runs, out, quantization if config.quantization else "int8")
        if config.quantization != "none":
            print(*map(cost_of_rounding, config.runs), sep="\n")
        return _say_how_to_use(out, config.to)
    model, tokenizer = load_run(run)
    if config.to in ("saved_model", "keras") and not isinstance(tokenizer, CharacterTokenizer):
        raise ValueError(f"{run} has a {type(tokenizer).__name__}; expected a CharacterTokenizer.")
    if config.to == "hugging_face":
        pretrained.save(model, out, tokenizer)
    elif config.to == "keras":
        if out.suffix != ".keras" or out.exists():
            raise ValueError(f"--out {out}: expected the name of a new .keras file.")
        with atomic_write(out) as temporary:
            with_text_input(model, tokenizer).save(temporary)
    else:
        options = {"quantization": quantization, "batch_size": config.batch_size, "lengths": config.lengths}
        export(model, out, config.to, tokenizer=tokenizer, **options)
    return _say_how_to_use(out, config.to)


def _say_how_to_use(out, format):
    print(f"Written: {out}\nTo use it: {USES[format].format(path=str(out))}")
