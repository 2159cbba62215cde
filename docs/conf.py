"""How the site is built from the pages of this folder and the docstrings of the public face: `scripts/docs`."""

import fnmatch

from sphinx.application import Sphinx

import dibs

project = "dibs"
author = "the authors of dibs"
release = version = dibs.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"dibs {version}"
html_show_sourcelink = False
html_copy_source = False
exclude_patterns = ["_build"]

# Markdown: headings can be linked to, as on the pages of a code host.
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_inline"]

# Docstrings write names and values in single backticks, as Markdown does.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autoclass_content = "both"  # what the arguments of a class mean is said in its __init__
add_module_names = False

# A name of dibs' that leads nowhere is an error; those of others are not looked up, so that no network is needed.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!dibs\.).*"), ("py:.*", r"dibs\.\w+\.([A-Z]|[A-Z]_co)")]


def adapt(app: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to the README to where the site has that. In the index put the pages that it does not name in the place
    of `others`, so that none is left out, and leave out patterns of it that match none."""
    source[0] = source[0].replace("](../README.md#connections)", "](api.md#connections)")
    source[0] = source[0].replace("](../README.md)", "](index.md)")
    if page != "index":
        return
    lines = source[0].splitlines()
    patterns = [line for line in lines if line and " " not in line]
    pages = sorted(app.env.found_docs - {"index"})
    others = [page for page in pages if not any(fnmatch.fnmatchcase(page, pattern) for pattern in patterns)]
    lines = [line for line in lines if line not in patterns or "*" not in line or fnmatch.filter(pages, line)]
    source[0] = "\n".join("\n".join(others) if line == "others" else line for line in lines) + "\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", adapt)
