"""The rules of the speedrun in numbers, its records on disk, and their table.

records/NN-name/result.json    name, date, val_losses, seconds, p_value, and what was measured with each seed
                recipe.py      what was run
                log.txt        what it printed, seed by seed

scaled seconds = processor seconds x GFLOP/s of a float32 product there / REFERENCE_GFLOPS
t = (TARGET - mean) sqrt(n) / s,   p = P(T > t) of Student's t with n - 1 degrees of freedom, for n seeds

That a record is faster than the one before it is Welch's test of the scaled seconds of both, one-sided.
"""

import hashlib
import json
import pathlib
import re
import statistics
from collections.abc import Sequence

from keras_seq.files import atomic_folder, write_json, write_text
from keras_seq.reports.tables import Table, plus_minus

TARGET, LENGTH, MAX_P = 1.47, 256, 0.01  # of val_loss, in nats per character; of the windows; of the test
MIN_SEEDS = 3
MAX_DRIFT = 0.15  # of the machine's speed during a seed, relative
REFERENCE_GFLOPS = 100.0  # billions of operations a second of processor time, so that seconds are those of such a core
MAX_RECIPE_BYTES = 40_000
BACKEND = re.compile(r"""^BACKEND = ["'](\w+)["']""", re.MULTILINE)  # a line of a recipe, for its process

FOLDER = pathlib.Path(__file__).parent / "records"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "speedrun.md"
START, END = "<!-- records -->", "<!-- end of the records -->"


def p_value(losses: Sequence[float]) -> float:
    """Return the probability of a mean as far below TARGET by chance: the one-sided t-test over the seeds."""
    from scipy import stats

    if len(losses) < 2:
        return 1.0
    if min(losses) == max(losses):
        return float(losses[0] >= TARGET)
    return float(stats.ttest_1samp(losses, TARGET, alternative="less").pvalue)


def drift(row: dict) -> float:
    """Return by how much the machine's speed changed while a seed trained, relative to the lower one."""
    before, after = row["gflops"]
    return abs(after - before) / min(before, after)


def scaled_seconds(row: dict) -> float:
    """Return the processor seconds of a training on a core of REFERENCE_GFLOPS."""
    return row["processor_seconds"] * statistics.mean(row["gflops"]) / REFERENCE_GFLOPS


def summary(rows: Sequence[dict]) -> dict:
    """Return what a record says of its seeds: losses, scaled seconds, p value."""
    losses = [row["val_loss"] for row in rows]
    return {
        "val_losses": losses,
        "val_loss": statistics.mean(losses),
        "p_value": p_value(losses),
        "seconds": statistics.mean(map(scaled_seconds, rows)),
    }


def p_faster(rows: Sequence[dict], standing: Sequence[dict]) -> float:
    """Return the probability of seeds as much faster than those of another record by chance."""
    from scipy import stats

    seconds = [[scaled_seconds(row) for row in seeds] for seeds in (rows, standing)]
    if all(min(times) == max(times) for times in seconds):
        return float(seconds[0][0] >= seconds[1][0])
    return float(stats.ttest_ind(*seconds, equal_var=False, alternative="less").pvalue)


def objections(rows: Sequence[dict], standing: dict | None = None) -> list[str]:
    """Return why seeds make no record, a sentence each; `standing` is the fastest record so far."""
    result, sentences = summary(rows), []
    if len(rows) < MIN_SEEDS:
        sentences.append(f"{len(rows)} seeds: expected at least {MIN_SEEDS}; raise --num-seeds.")
    if not result["p_value"] < MAX_P:
        sentences.append(
            f"p = {result['p_value']:.2g} that the mean val_loss, {result['val_loss']:.4f}, is below {TARGET} by "
            f"chance: expected less than {MAX_P}; lower the loss."
        )
    sentences += noisy_seeds(rows)
    if standing is not None and len(rows) > 1 and not (p := p_faster(rows, standing["seeds"])) < MAX_P:
        sentences.append(
            f"{result['seconds']:.1f} s, p = {p:.2g} of being below the {standing['seconds']:.1f} s of the last record "
            f"by chance: expected less than {MAX_P}."
        )
    return sentences


def noisy_seeds(rows: Sequence[dict]) -> list[str]:
    """Return a sentence for each seed that does not count, because the machine's speed changed while it trained."""
    return [
        f"seed {row['seed']}: the machine's speed changed by {drift(row):.0%} while it trained; expected at most "
        f"{MAX_DRIFT:.0%}: run it when nothing else runs."
        for row in rows
        if drift(row) > MAX_DRIFT
    ]


# On disk


def load(folder: pathlib.Path | None = None) -> list[dict]:
    """Return the records of a folder, FOLDER by default, in their order, each with its `number`."""
    numbered = sorted((int(p.parent.name.partition("-")[0]), p) for p in (folder or FOLDER).glob("*/result.json"))
    return [{"number": number, **json.loads(path.read_text(encoding="utf-8"))} for number, path in numbered]


def fastest(folder: pathlib.Path | None = None) -> dict | None:
    """Return the record that stands, None if there is no record."""
    return min(load(folder), key=lambda record: record["seconds"], default=None)


def write(name: str, run: pathlib.Path, rows: Sequence[dict], facts: dict, folder: pathlib.Path | None = None):
    """Write a record from the folder of its runs and return its folder; `facts` are the date and the machine."""
    folder = folder or FOLDER
    number = max((record["number"] for record in load(folder)), default=0) + 1
    recipe = (run / "recipe.py").read_text(encoding="utf-8")
    logs = [f"seed {row['seed']}\n\n{(run / row['run'] / 'log.txt').read_text(encoding='utf-8')}" for row in rows]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    folder.mkdir(exist_ok=True)
    with atomic_folder(folder / f"{number:02}-{slug}") as temporary:
        write_text(temporary / "recipe.py", recipe)
        write_text(temporary / "log.txt", "\n".join(logs))
        sha256 = hashlib.sha256(recipe.encode()).hexdigest()
        write_json(temporary / "result.json", {"name": name, **facts, "recipe": sha256, **summary(rows), "seeds": rows})
    return folder / f"{number:02}-{slug}"


def table(records: Sequence[dict]) -> Table:
    """Return the table of the records for the page, the first one first."""
    columns = {
        "#": lambda record: str(record["number"]),
        "record": lambda record: record["name"],
        "seconds": lambda record: f"{record['seconds']:.1f}",
        f"val_loss@{LENGTH}": lambda record: plus_minus(record["val_losses"], 4),
        "backend": lambda record: record["seeds"][0]["backend"],
        "seeds": lambda record: str(len(record["val_losses"])),
        "p": lambda record: f"{record['p_value']:.1e}",
        "date": lambda record: record["date"],
    }
    return Table.of(records, columns)


def page_with(text: str, records: Sequence[dict]) -> str:
    """Return the text of the page with the table of these records."""
    before, rest = text.split(START)
    lines = str(table(records)) if records else "There is no record yet."
    return f"{before}{START}\n\n{lines}\n\n{END}{rest.split(END)[1]}"


def write_table(page: pathlib.Path | None = None, folder: pathlib.Path | None = None):
    """Write the table of the records into the page, PAGE by default."""
    page = page or PAGE
    write_text(page, page_with(page.read_text(encoding="utf-8"), load(folder)))
