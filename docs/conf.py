"""Configure Sphinx: `make docs` builds the site of docs/ and the reference into build/site, without a network."""

import pathlib
import re
import shutil
import sys

DOCS = pathlib.Path(__file__).parent
sys.path.insert(0, str(DOCS))
import reference  # noqa: E402

from keras_seq.runs.finished_run import write_living_page  # noqa: E402

project = "keras_seq"
author = "the keras_seq authors"
extensions = ["myst_nb", "sphinx_copybutton"]
nb_execution_mode = "off"  # notebooks are shown with the outputs that they are kept with
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
copybutton_exclude = ".linenos, .gp, .go"
exclude_patterns = ["results", "images", "plots", "living"]
html_extra_path = ["generated/living.html"]  # of the runs in living/: python -m experiments.compare
html_theme = "pydata_sphinx_theme"
html_title = "keras_seq"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
}
LIVING = r'<iframe class="living" src="living.html" title="\1" loading="lazy"></iframe>'  # the page, not its picture
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
suppress_warnings = ["misc.highlighting_failure"]


def setup(app):
    """Write the generated pages, and point links to files of the repository to the pages that show them."""
    shutil.rmtree(DOCS / "generated", ignore_errors=True)
    reference.write_pages(DOCS / "generated")
    write_living_page([DOCS / "living/lstm", DOCS / "living/transformer"], DOCS / "generated/living.html")

    def turn_links(app, name, source):
        if not name.startswith("generated/"):
            source[0] = reference.redirect(source[0], DOCS / f"{name}.md")
        if name == "index":  # the site's home: the README, with its links turned, and below it the reading order
            readme = reference.redirect(
                (DOCS.parent / "README.md").read_text(encoding="utf-8"), DOCS.parent / "README.md"
            )
            readme = re.sub(r"!\[([^]]*)\]\(\S*living\.png\)", LIVING, readme)
            source[0] = f"{readme}\n#{source[0]}"

    app.connect("source-read", turn_links)
