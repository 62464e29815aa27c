# SPDX-License-Identifier: Apache-2.0
"""The site of these pages: ``make docs`` builds it."""

from importlib import metadata

project = "pulsar-spark"
version = release = metadata.version(project)
html_title = f"{project} {version}"
html_show_copyright = False
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
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
