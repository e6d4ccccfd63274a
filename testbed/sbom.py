"""The bill of materials as CycloneDX, from the lock file: `python -m testbed.sbom FILE`.

uv converts the lock file. What it leaves open is added: which version of Fairlead this is, and a time and a number that the
content decides, so that the same lock file gives the same bytes. What only development needs is removed where uv has it as a
dependency of Fairlead, because another dependency needs it, too.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairlead import __version__
from testbed.wheel import ROOT, epoch, export


def document() -> dict[str, Any]:
    """The bill of materials: what Fairlead depends on, directly and not, on every system."""
    found: dict[str, Any] = json.loads(export("cyclonedx1.5", "--preview-features", "sbom-export"))
    metadata = found["metadata"]
    [own] = [each for each in found["dependencies"] if each["ref"] == metadata["component"]["bom-ref"]]
    direct, names = _direct(), {each["bom-ref"]: each["name"] for each in found["components"]}
    own["dependsOn"] = [each for each in own["dependsOn"] if names[each] in direct]
    metadata["timestamp"] = datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    del metadata["component"]["properties"]
    metadata["component"] |= {
        "type": "application",
        "version": __version__,
        "purl": f"pkg:pypi/fairlead@{__version__}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    del found["serialNumber"]
    found["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(found, sort_keys=True))}"
    return found


def _direct() -> set[str]:
    """The names of what the project itself requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {re.split(r"[^a-z0-9-]", each)[0] for each in project["dependencies"]}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(document(), indent=1, sort_keys=True) + "\n")
