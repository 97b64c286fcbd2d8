"""compare.html: the whole comparison on one page that needs nothing else, for a large screen, a phone, and the dark.

The curves are drawn by `compare_page.js` from the JSON in the page; figures, samples and settings are there without it.
"""

import dataclasses
import json
import math
import pathlib

from experiments import compare_budgets, compare_sweep, pages, report
from experiments.compare_findings import CURVES, Findings
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
.chart .reference { stroke: var(--faint); stroke-dasharray: 4 3; stroke-width: 1; opacity: .7; }
.chart .curve { fill: none; stroke-width: 2; }
.chart .band { stroke: none; opacity: .16; }
.told { position: static; font-size: .85rem; min-height: 3.2rem; font-variant-numeric: tabular-nums; }
.small { font-size: .8rem; }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 1rem; }
.samples h3 { font-size: .95rem; margin: .2rem 0; }
.samples .text { margin: 0; font-size: .85rem; line-height: 1.5; border-left: 3px solid; padding-left: .7rem; }
details { margin: .8rem 0; } summary { cursor: pointer; }
details pre { overflow-x: auto; font-size: .8rem; }
"""


def comparison_page(found: Findings) -> str:
    """The page, as HTML."""
    title = f"{found.corpus.name}: {', '.join(found.models)}"
    count = f"{found.seeds} seeds each; " if found.seeds > 1 else ""
    matched = f"{count}matched by {found.settings.match}."
    most = found.settings.train.validation_characters
    part = "" if most is None else f" Where that is longer, the curves are of its first {most:,} characters."
    body = [
        f"<p>{matched} Losses are nats per character of the whole validation split.{part}</p>",
        _chart("curves", "Loss over training", found.models),
        "<h2>Figures</h2>",
        _table(_cells(report.table(found.rows)), sortable=True),
    ]
    if found.seeds > 1:
        body += ["<h2>Over the seeds</h2>", _table(_cells(report.spread(found.rows)), sortable=True)]
    if len(found.models) > 1:
        body += ["<h2>Differences</h2>", _table(_differences(found))]
        body += ["<p>Cold nats per character, and how sure that is: a bootstrap over the text and the seeds.</p>"]
    body += [f"<p>{pages.escaped(report.notes(found.rows))}</p>", _chart("positions", "Loss by position, cold", [])]
    body += ["<h2>Without training</h2>", _table(_references(found))]
    if found.note:
        body.append(f"<p>{pages.escaped(found.note)}</p>")
    if found.tried:
        body += ["<h2>Learning rates, on text cut from the training split</h2>"]
        body += [_table(_cells(compare_sweep.table(found.tried)))]
        body += [f"<p>{pages.escaped(sentence)}</p>" for sentence in compare_sweep.warnings(found.tried)]
    body += ["<h2>Samples</h2>", _samples(found), _settings(found)]
    script = (HERE / "compare_page.js").read_text(encoding="utf-8")
    return pages.page(title, "\n".join(body), script, STYLE, _data(found))


def _chart(name, title, models) -> str:
    """An empty chart with its legend; the script fills it."""
    buttons = "".join(
        f'<button type="button" data-model="{n}" aria-pressed="true"><i style="background:var(--c{n % 10})"></i>'
        f"{pages.escaped(model)}</button>"
        for n, model in enumerate(models)
    )
    choice = (
        '<label>over <select id="axis"><option value="tokens">tokens</option><option value="seconds">seconds</option>'
        '<option value="flops">training FLOPs</option></select></label>'
    )
    legend = f'<div class="legend">{buttons} {choice}</div>' if models else ""
    return (
        f'<h2>{title}</h2>{legend}<div class="chart" id="{name}"></div><p class="small" id="{name}-note"></p>'
        f'<div class="told" id="{name}-told">Hover over the chart or tap it.</div>'
    )


def _cells(markdown):
    """The cells of a Markdown table of ours, the header first."""
    header, _, *lines = markdown.splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *lines)]


def _table(lines, sortable=False) -> str:
    """An HTML table from its cells."""
    header, *rest = lines
    before, behind = ('<button type="button">', "</button>") if sortable else ("", "")
    head = "".join(f"<th>{before}{pages.escaped(cell)}{behind}</th>" for cell in header)
    rows = "".join(f"<tr>{''.join(f'<td>{pages.escaped(cell)}</td>' for cell in line)}</tr>" for line in rest)
    kind = ' class="sortable"' if sortable else ""
    return f'<div class="wide"><table{kind}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _differences(found):
    lines = [["model", f"less {found.models[0]}", "95 % interval"]]
    for model, d in found.differences().items():
        lines.append([model, f"{d.mean:+.4f}", f"{d.low:+.4f} to {d.high:+.4f}"])
    return lines


def _references(found):
    lines = [["", "nats", "bits"]]
    for r in found.references:
        lines.append([r.name, f"{r.nats_per_character:.3f}", f"{r.nats_per_character / math.log(2):.3f}"])
    return lines


def _samples(found) -> str:
    """What each model wrote with its first seed, side by side."""
    parts = []
    for n, model in enumerate(found.models):
        text = pages.escaped(found.of(model)[0]["sample"])
        shown = f'<div class="text" style="border-color:var(--c{n % 10})">{text}</div>'
        parts.append(f"<div><h3>{pages.escaped(model)}</h3>{shown}</div>")
    return f'<div class="samples">{"".join(parts)}</div>'


def _settings(found) -> str:
    """What it takes to do it again."""
    config = read_config(found.run(found.rows[0]))
    budgets = _table(_cells(compare_budgets.table(found.settings, found.budgets)))
    shown = json.dumps(dataclasses.asdict(found.settings), indent=1, ensure_ascii=False)
    return (
        f"<h2>Settings</h2>{budgets}<p>Corpus {pages.escaped(found.corpus.name)}, {len(found.corpus.text):,} "
        f"characters, sha256 <code>{found.corpus.sha256}</code></p>"
        f"<p>{pages.escaped(', '.join(f'{name} {value}' for name, value in config['versions'].items()))}</p>"
        f"<details><summary>All settings</summary><pre>{pages.escaped(shown)}</pre></details>"
    )


def _data(found) -> dict:
    """What the script draws."""

    def rounded(values, digits):
        return [round(value, digits) for value in values]

    models = []
    for model in found.models:
        curves = {}
        for name in CURVES:
            curve = found.curve(model, name)
            digits = {"tokens": 0, "seconds": 2}
            curves[name] = {key: rounded(values, digits.get(key, 4)) for key, values in curve.items()}
        models.append(
            {
                "name": model,
                "flopsPerToken": found.budgets[model].flops_per_token,
                "curves": curves,
                "positions": rounded(found.by_position(model), 4),
            }
        )
    references = [{"name": r.name, "nats": round(r.nats_per_character, 4)} for r in found.references]
    return {"models": models, "references": references, "seeds": found.seeds}
