"""`python -m testbed.image DIST`: from the wheel and the requirements in DIST the image as an OCI layout, DIST/image."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from testbed import image
from testbed.build import cache


def main() -> None:
    """Parse the command line and do it."""
    parser = argparse.ArgumentParser(prog="python -m testbed.image", description=__doc__)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--fresh", action="store_true", help="with today's packages of Debian: keep nothing of earlier builds")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(cache() / "image", ignore_errors=True)
    layout = image.build(options.dist.resolve())
    print(f"{layout}: {sum(each.stat().st_size for each in layout.rglob('*') if each.is_file()) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
