"""The documentation as a site: `make docs` builds it into .cache/docs."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "docs" / "_ext")]

import fairlead  # noqa: E402 - found by the lines above

project = "Fairlead"
author = "the authors of Fairlead"
release = version = fairlead.__version__
extensions = ["myst_parser", "generated"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext"]
html_theme = "furo"
html_title = f"Fairlead {release}"
html_show_sphinx = False
nitpicky = True
myst_heading_anchors = 4
highlight_language = "none"
