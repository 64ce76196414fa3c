"""docs/security.md has a row for every role of the service and of the database, and each names a test that is there."""

import re
from pathlib import Path

import click
import yaml

from steno.cli.commands.maintenance import grant, status
from steno.projections.api.token_store import Role

ROOT = Path(__file__).parents[2]
COLUMNS = 4  # role, may, may not, test
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(heading: str) -> dict[str, str]:
    """The first cell of each row of the table below a heading, and the cell that names its tests."""
    text = (ROOT / "docs" / "security.md").read_text()
    section = re.split(r"^#", text.partition(f"\n### {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    assert cells, heading
    assert {len(row) for row in cells} == {COLUMNS}, heading
    return {row[0].strip(): row[-1] for row in cells[2:]}


def test_every_role_of_the_service_has_its_row() -> None:
    """And who comes without a token."""
    expected = {f"`{role}`" for role in Role} | {"nobody: no token", "this machine: no token, on loopback"}
    assert set(rows("Roles of the service")) == expected


def test_every_role_of_the_database_has_its_row() -> None:
    """Each that `db grant` can make, those that need no grant, and those of compose.yml."""
    others = {option for parameter in status.params for option in parameter.opts}
    flags = {parameter.opts[0] for parameter in grant.params if isinstance(parameter, click.Option)} - others
    assert flags
    granted = {"`steno db grant ROLE`"} | {f"`steno db grant ROLE {flag}`" for flag in flags}
    table = rows("Roles of the database")
    assert set(table) == granted | {"anybody who may connect", "the owner of the record", "a superuser of the server"}
    compose = (ROOT / "docs" / "deploy" / "compose.yml").read_text()
    users = {*re.findall(r"postgresql://(\w+)@", compose)}
    users.add(yaml.safe_load(compose)["services"]["database"]["environment"]["POSTGRES_USER"])
    section = (ROOT / "docs" / "security.md").read_text().partition("\n### Roles of the database\n")[2]
    assert {user for user in users if f"`{user}`" not in section} == set()


def test_every_test_that_a_row_names_is_there() -> None:
    """At least one a row."""
    for heading in ("Roles of the service", "Roles of the database"):
        for role, cell in rows(heading).items():
            named = _TEST.findall(cell)
            assert named, role
            for file, name in named:
                assert f"\ndef {name}(" in (ROOT / file).read_text(), (role, file, name)
