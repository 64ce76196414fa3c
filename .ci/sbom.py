"""Prints the CycloneDX bill of materials of a lock: `python .ci/sbom.py requirements.lock`.

Each pinned package is a component, and the lines `# via` give what requires it. Hashes stay in the lock, which has
them for every file of a package. The same lock gives the same bytes.
"""

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PIN = re.compile(r"^([\w.-]+)==([^\s;\\]+)(?: ; (.+?))?(?: \\)?$")
_VIA = re.compile(r"^    #(?: via)?(?: +([\w.-]+)(?: \(pyproject\.toml\))?)?$")


def bill(lock: str, name: str, version: str) -> dict[str, object]:
    """The bill of the project `name`, a dictionary for JSON."""
    root = f"pkg:pypi/{name}@{version}"
    components: dict[str, dict[str, object]] = {}
    required_by: list[tuple[str, str]] = []  # a package's name, and the reference of what it requires
    reference = ""
    for line in lock.splitlines():
        if pin := _PIN.match(line):
            reference = f"pkg:pypi/{pin[1]}@{pin[2]}"
            component: dict[str, object] = {"type": "library", "bom-ref": reference, "name": pin[1], "version": pin[2]}
            components[reference] = component | {"purl": reference}
            if pin[3]:
                components[reference]["properties"] = [{"name": "marker", "value": pin[3]}]
        elif reference and (via := _VIA.match(line)) and via[1]:
            required_by.append((via[1], reference))
    references = {component["name"]: key for key, component in components.items()} | {name: root}
    depends: dict[str, list[str]] = {key: [] for key in (root, *components)}
    for package, needed in required_by:
        depends[references[package]].append(needed)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, root + lock)}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": root, "name": name, "version": version, "purl": root}
        },
        "components": list(components.values()),
        "dependencies": [{"ref": key, "dependsOn": sorted(needed)} for key, needed in depends.items()],
    }


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    print(json.dumps(bill(Path(sys.argv[1]).read_text(), project["name"], project["version"]), indent=1))
