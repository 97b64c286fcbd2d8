"""How well do models restore the spaces and capitals of a text, reading one side of a character or both?

    python -m experiments.space_restoration                                     # Python's help topics, offline
    python -m experiments.space_restoration --corpus shakespeare
    python -m experiments.space_restoration --smoke                             # tiny sizes, takes seconds
    python -m experiments.space_restoration --run logs/space_restoration/20260101-120000/bilstm-seed0 --text "tobeor"

Time: 6 to 9 minutes on 2 cores.

Every character other than white space gets one of four tags: space before it or not (a line break is one), capital or
not. Expected on pydoc: the BiLSTM, which reads both sides, restores 88 % of the words, the LSTM 80 %, the encoder 77 %.
"""

import pathlib

from experiments.frame.experiment import experiment_main
from experiments.frame.report import Report
from experiments.frame.runs import dataclass_from_dict
from experiments.frame.tasks import run_task
from experiments.frame.texts import compare_sizes
from experiments.space_restoration.data import SpacingText
from experiments.space_restoration.models import build_tagger
from experiments.space_restoration.report import spacing_report
from experiments.space_restoration.scores import SpacingTask, Tagger, no_tags
from experiments.space_restoration.settings import SMOKE, SpaceRestorationConfig
from keras_seq.training import checksummed_json, load_run


def restore_text(run: pathlib.Path, text: str) -> str:
    """Restore the spaces and capitals of a text with the model of a finished run."""
    model, tokenizer = load_run(run)
    try:
        saved = dataclass_from_dict(SpaceRestorationConfig, checksummed_json.read(run / "config.json")["experiment"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"--run {run}: its config.json is not that of a run of this experiment.") from error
    return Tagger(model, tokenizer, saved.sequence_length)(text)


def compare(settings: SpaceRestorationConfig, folder: pathlib.Path) -> Report | str:
    """Train the taggers that are not finished in `folder`, and report the comparison; or restore --text."""
    if settings.run is not None:
        return restore_text(pathlib.Path(settings.run), settings.text)
    data = SpacingText(settings, folder)
    counts = [build_tagger(getattr(settings, name), data.num_ids).count_params() for name in settings.models]
    plan = f"{settings.steps:,} steps of {settings.batch_size} x {settings.sequence_length}"
    data.introduce(settings.train, settings.sequence_length, plan)
    print(*filter(None, [compare_sizes(counts)]))

    def new_task(name):
        return SpacingTask(
            build_tagger(getattr(settings, name), data.num_ids, settings.train.dtype_policy), settings, data
        )

    saved = {"corpus": data.corpus, "tokenizer": data.tokenizer}
    rows = [run_task(folder, settings, name, getattr(settings, name), new_task, **saved) for name in settings.models]
    return spacing_report(data.corpus.name, folder, [no_tags(data), *rows])


main = experiment_main("space_restoration", SpaceRestorationConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
