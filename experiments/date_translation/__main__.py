r"""Can an encoder-decoder Transformer translate dates in 20 written formats into ISO 8601, character by character?

    "Sat 3rd of Sept. 1994"  ->  "1994-09-03"

    python -m experiments.date_translation
    python -m experiments.date_translation --train.optimizer muon --schedule linear_decay --train.warmup-steps 100 \
        --steps 1000
    python -m experiments.date_translation --smoke                     # tiny sizes, takes seconds
    python -m experiments.date_translation --run logs/date_translation/20260101-120000/seq2seq-seed0 \
        --text "3rd of Sept. 1994"

Time: 5 to 6 minutes on 2 cores.

The recipe is that of Vaswani et al. (2017, https://arxiv.org/abs/1706.03762): Adam, a learning rate proportional to the
inverse square root of the step, label smoothing. Expected for dates not trained on: 99.5 % exact match in the 18
formats trained on and 81 % in the two held out; the second command needs a third of the steps for 99.8 % and 85 %.
"""

import pathlib

from experiments.date_translation.report import attention_figure, dates_report
from experiments.date_translation.scores import DatesTask, Translator
from experiments.date_translation.settings import SMOKE, DateTranslationConfig
from experiments.frame.experiment import experiment_main
from experiments.frame.plots import pixels
from experiments.frame.report import Report
from experiments.frame.tasks import run_task
from keras_seq.data.synthetic import dates
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries
from keras_seq.training import load_run


def new_task(settings: DateTranslationConfig) -> DatesTask:
    """Build the model and its task, with the picture of the cross-attention for TensorBoard."""
    task = DatesTask(settings.model.build_model(dates.VOCABULARY_SIZE, dtype=settings.train.dtype_policy), settings)
    task.diagnostics = [lambda: Summaries({}, images={"cross_attention": pixels(attention_figure(task.translate))})]
    return task


def translate_text(run: str, text: str) -> str:
    """Translate a text with the model of a finished run."""
    model, tokenizer = load_run(run)
    if tokenizer != CharacterTokenizer(dates.ALPHABET):
        problem = "its tokenizer does not have the characters of dates"
        raise ValueError(f"--run {run}: {problem}; expected a run of this experiment.")
    return Translator(model)([text])[0]


def translate_dates(settings: DateTranslationConfig, folder: pathlib.Path) -> Report | str:
    """Train the model unless it is finished, and report its exact matches; or translate --text."""
    if settings.run is not None:
        return translate_text(settings.run, settings.text)
    model = settings.model.build_model(dates.VOCABULARY_SIZE)  # raises before anything is written
    print(f"{settings.pairs:,} pairs in {len(dates.FORMATS)} formats, {model.count_params():,} parameters")
    schedule, train = settings.learning_rate_schedule()
    options = {"tokenizer": CharacterTokenizer(dates.ALPHABET), "schedule": schedule}
    row = run_task(folder, settings, "seq2seq", settings.model, lambda name: new_task(settings), train, **options)
    return dates_report(folder, row, settings.label_smoothing)


main = experiment_main("date_translation", DateTranslationConfig, SMOKE, translate_dates, __doc__)

if __name__ == "__main__":
    main()
