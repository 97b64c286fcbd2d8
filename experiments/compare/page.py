"""Write compare.html: the whole comparison on one self-contained page, for large and small screens, light and dark.

`page.js` draws the curves from the JSON in the page; tables, samples and options need no JavaScript.
"""

import dataclasses
import json
import math
import pathlib

from experiments.compare import budgets as compare_budgets
from experiments.compare import sweep as compare_sweep
from experiments.compare import tables as report
from experiments.compare.findings import CURVES, ComparisonResults
from experiments.frame import pages as html_page
from experiments.frame.tables import Table
from keras_seq.training.resume_check import read_config

HERE = pathlib.Path(__file__).parent
STYLE = """
:root { --c0: #1f77b4; --c1: #d95f02; --c2: #2ca02c; --c3: #d62728; --c4: #9467bd; --c5: #8c564b; --c6: #d14fa8;
  --c7: #6b6b6b; --c8: #8f8f00; --c9: #0f9aa8; }
@media (prefers-color-scheme: dark) { :root { --c0: #5fb0ee; --c1: #ff9a4d; --c2: #63cc63; --c3: #ff7373; --c4: #bf9be6;
  --c5: #c69488; --c6: #f094d4; --c7: #b5b5b5; --c8: #d6d650; --c9: #4fd0dd; } }
body { max-width: 70rem; padding-bottom: 3rem; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .55rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, .words { text-align: left; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible, .legend button:focus-visible { outline: 2px solid var(--ink); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; margin: .4rem 0; }
.legend button { font: inherit; font-size: .9rem; color: var(--ink); background: none; border: 1px solid var(--line);
  border-radius: 1rem; padding: .15rem .7rem; cursor: pointer; }
.legend button i { display: inline-block; width: .8rem; height: .8rem; border-radius: 50%; margin-right: .4rem; }
.legend button[aria-pressed=false] { opacity: .4; text-decoration: line-through; }
.chart { position: relative; touch-action: pan-y; }
.chart svg { display: block; width: 100%; overflow: visible; }
.chart text { fill: var(--faint); font-size: 12px; paint-order: stroke; stroke: var(--page); stroke-width: 4px; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart .baseline { stroke: var(--faint); stroke-dasharray: 4 3; stroke-width: 1; opacity: .7; }
.chart .curve { fill: none; stroke-width: 2; }
.chart .band { stroke: none; opacity: .16; }
.tooltip { position: static; font-size: .85rem; min-height: 3.2rem; font-variant-numeric: tabular-nums; }
.small { font-size: .8rem; }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 1rem; }
.samples h3 { font-size: .95rem; margin: .2rem 0; }
.samples .text { margin: 0; font-size: .85rem; line-height: 1.5; border-left: 3px solid; padding-left: .7rem; }
details { margin: .8rem 0; } summary { cursor: pointer; }
details pre { overflow-x: auto; font-size: .8rem; }
"""


def comparison_html(results: ComparisonResults) -> str:
    """Return the page as HTML."""
    title = f"{results.corpus.name}: {', '.join(results.models)}"
    seeds = f"{results.num_seeds} seeds per model; " if results.num_seeds > 1 else ""
    matched = f"{seeds}matched by {results.config.match}."
    limit = results.config.train.validation_characters
    part = "" if limit is None else f" If it is longer, the curves are of its first {limit:,} characters."
    body = [
        f"<p>{matched} Losses are in nats per character of the whole validation split.{part}</p>",
        _chart("curves", "Loss during training", results.models),
        "<h2>Results</h2>",
        _table(_cells(Table.of(results.rows, report.COLUMNS)), sortable=True),
    ]
    if results.num_seeds > 1:
        body += ["<h2>Mean and standard deviation over the seeds</h2>"]
        body += [_table(_cells(report.seeds_table(results)), sortable=True)]
    if len(results.models) > 1:
        body += ["<h2>Differences</h2>", _table(_differences(results))]
        body += ["<p>Of val_loss, in nats per character; intervals from a bootstrap over the text and the seeds.</p>"]
    body += [f"<p>{html_page.escape(report.column_notes(results.rows))}</p>"]
    body += [_chart("positions", "Validation loss by position in the window", [])]
    body += ["<h2>Baselines</h2>", _table(_baselines(results))]
    if results.note:
        body.append(f"<p>{html_page.escape(results.note)}</p>")
    if results.sweep_runs:
        body += ["<h2>Learning rates, by the loss of text held out from the training split</h2>"]
        body += [_table(_cells(compare_sweep.table(results.sweep_runs)))]
        body += [f"<p>{html_page.escape(message)}</p>" for message in compare_sweep.warnings(results.sweep_runs)]
    body += ["<h2>Samples</h2>", _samples(results), _config(results)]
    script = (HERE / "page.js").read_text(encoding="utf-8")
    return html_page.page(title, "\n".join(body), script, STYLE, _data(results))


def _chart(name, title, models) -> str:
    """Return an empty chart with its legend, which the script fills."""
    buttons = "".join(
        f'<button type="button" data-model="{n}" aria-pressed="true"><i style="background:var(--c{n % 10})"></i>'
        f"{html_page.escape(model)}</button>"
        for n, model in enumerate(models)
    )
    select = (
        '<label>over <select id="axis"><option value="tokens">tokens</option><option value="seconds">seconds</option>'
        '<option value="flops">training FLOPs</option></select></label>'
    )
    legend = f'<div class="legend">{buttons} {select}</div>' if models else ""
    return (
        f'<h2>{title}</h2>{legend}<div class="chart" id="{name}"></div><p class="small" id="{name}-note"></p>'
        f'<div class="tooltip" id="{name}-tooltip">Hover over the chart or tap it.</div>'
    )


def _cells(markdown):
    """Return the cells of a table from `markdown_table`, the header first."""
    header, _, *lines = str(markdown).splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *lines)]


def _table(lines, sortable=False) -> str:
    """Return an HTML table from its cells."""
    header, *rest = lines
    prefix, suffix = ('<button type="button">', "</button>") if sortable else ("", "")
    head = "".join(f"<th>{prefix}{html_page.escape(cell)}{suffix}</th>" for cell in header)
    rows = "".join(f"<tr>{''.join(f'<td>{html_page.escape(cell)}</td>' for cell in line)}</tr>" for line in rest)
    css_class = ' class="sortable"' if sortable else ""
    return f'<div class="wide"><table{css_class}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _differences(results):
    lines = [["model", f"difference to {results.models[0]}", "95 % interval"]]
    for model, d in results.differences.items():
        lines.append([model, f"{d.mean:+.4f}", f"{d.low:+.4f} to {d.high:+.4f}"])
    return lines


def _baselines(results):
    lines = [["baseline", "loss", "bits"]]
    for b in results.baselines:
        lines.append([b.name, f"{b.loss_per_character:.3f}", f"{b.loss_per_character / math.log(2):.3f}"])
    return lines


def _samples(results) -> str:
    """Return the sample of each model's first seed, side by side."""
    parts = []
    for n, model in enumerate(results.models):
        text = html_page.escape(results.for_model(model)[0]["sample"])
        block = f'<div class="text" style="border-color:var(--c{n % 10})">{text}</div>'
        parts.append(f"<div><h3>{html_page.escape(model)}</h3>{block}</div>")
    return f'<div class="samples">{"".join(parts)}</div>'


def _config(results) -> str:
    """Return what is needed to repeat the comparison: budgets, corpus, versions and options."""
    saved = read_config(results.run(results.rows[0]))
    budgets = _table(_cells(compare_budgets.table(results.config, results.budgets)))
    options = json.dumps(dataclasses.asdict(results.config), indent=1, ensure_ascii=False)
    versions = ", ".join(f"{name} {value}" for name, value in saved["versions"].items())
    return (
        f"<h2>Config</h2>{budgets}<p>Corpus {html_page.escape(results.corpus.name)}, {len(results.corpus.text):,} "
        f"characters, sha256 <code>{results.corpus.sha256}</code></p>"
        f"<p>{html_page.escape(versions)}</p>"
        f"<details><summary>All options</summary><pre>{html_page.escape(options)}</pre></details>"
    )


def _data(results) -> dict:
    """Return the data that the script draws."""

    def rounded(values, digits):
        return [round(value, digits) for value in values]

    models = []
    for model in results.models:
        curves = {}
        for name in CURVES:
            curve = results.curve(model, name)
            digits = {"tokens": 0, "seconds": 2}
            curves[name] = {key: rounded(values, digits.get(key, 4)) for key, values in curve.items()}
        models.append(
            {
                "name": model,
                "flopsPerToken": results.budgets[model].flops_per_token,
                "curves": curves,
                "positions": rounded(results.by_position(model), 4),
            }
        )
    baselines = [{"name": b.name, "loss": round(b.loss_per_character, 4)} for b in results.baselines]
    return {"models": models, "baselines": baselines, "num_seeds": results.num_seeds}
