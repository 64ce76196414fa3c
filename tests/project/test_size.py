"""The product stays small, and one name means one class."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("cli", "engine", "events", "migrations", "projections")
FILES = sorted(path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))

MOST_LINES = 65377
MOST_FILES = 450
"""To be lowered whenever the product shrinks, never raised without a reason in the commit."""


def test_the_product_stays_within_its_budget():
    """Product Python has at most so many lines and files."""
    lines = sum(len(path.read_text().splitlines()) for path in FILES)
    assert lines <= MOST_LINES
    assert len(FILES) <= MOST_FILES


def test_no_two_public_classes_have_one_name():
    """Searching for a name leads to one class."""
    places = defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}
