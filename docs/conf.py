# SPDX-License-Identifier: Apache-2.0
"""The site of these pages: ``make docs`` builds it."""

from importlib import metadata
from pathlib import Path

project = "pulsar-spark"
version = release = metadata.version(project)
html_title = f"{project} {version}"
html_show_copyright = False
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
# A block with `$ ` before its commands is copied without that, and without the output.
copybutton_prompt_text = "$ "
# PySpark is large, and of no use for a signature.
autodoc_mock_imports = ["pyspark"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
# PySpark's pages are elsewhere, and errors have a page of their own.
nitpick_ignore_regex = [
    ("py:class", r"(SparkSession|Column|Position|StreamingQuery).*"),
    ("py:exc", r".*Error"),
]
# Headings are linked to by the anchors that GitHub has for them.
myst_heading_anchors = 4

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_theme_options = {
    "source_repository": "https://github.com/pulsar-spark/pulsar-spark/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_copy_source = False

#: Pages that are files of the project's root, and how their links read from here.
_OF_ROOT = ("changelog", "contributing")
_LINKS = {
    "](docs/": "](",
    "](siblings/tubemq/README.md": "](tubemq.md",
    "](siblings/ydb_topic/README.md": "](ydb-topics.md",
}


def _take_from_root(app, name, source):
    """Put the text of a file of the project's root in place of the page."""
    if name in _OF_ROOT:
        text = (Path(app.srcdir).parent / f"{name.upper()}.md").read_text()
        for of_root, of_page in _LINKS.items():
            text = text.replace(of_root, of_page)
        source[0] = text


def setup(app):
    """Add what the site does besides."""
    app.connect("source-read", _take_from_root)
