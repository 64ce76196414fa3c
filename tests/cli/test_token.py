"""`steno token`: the token alone on stdout, once; everything else can be asked for again."""

import json
import re
from pathlib import Path

import pytest
from stenotest.command_line import Steno, refused

from steno.projections.api.token_store import TOKEN

pytestmark = pytest.mark.slow


def test_the_token_alone_goes_to_stdout(steno: Steno, record_file: Path) -> None:
    """So that it can be piped into the file it belongs in; what is said about it goes to stderr."""
    done = steno("token", "create", "--role", "submit", "--name", "site", "--expires", "30d")
    assert done.returncode == 0, done.stderr
    assert TOKEN.fullmatch(done.stdout.removesuffix("\n"))
    line = r"token [0-9a-f]{12}, site: submit, valid until 20\S+ \S+Z; it cannot be shown again\n"
    assert re.fullmatch(line, done.stderr)
    assert done.stdout.strip() not in Path(f"{record_file}.tokens").read_text()


def test_with_json_it_is_one_object(steno: Steno) -> None:
    """Stable keys."""
    done = steno("token", "create", "--role", "admin", "--json")
    made = json.loads(done.stdout)
    assert list(made) == [
        "token_id", "name", "role", "state", "by", "created_at", "expires_at", "revoked_at", "token", "position",
    ]  # fmt: skip
    assert made["name"] == f"admin-{made['token_id'][:4]}"
    assert made["position"] == 1
    assert made["expires_at"] is None
    assert done.stderr == ""


def test_who_may_do_what_is_listed(steno: Steno) -> None:
    """The newest first; those that are over only if asked for; never a token or its hash."""
    assert steno("ps").returncode == 4
    secret = steno("token", "create", "--role", "read", "--name", "grafana").stdout.strip()
    steno("token", "create", "--role", "submit", "--name", "site")
    page = steno("token", "list")
    assert [line.split()[1] for line in page.stdout.splitlines()] == ["NAME", "site", "grafana"]
    assert steno("token").stdout == page.stdout
    revoked = steno("token", "revoke", "grafana")
    assert re.fullmatch(r"token [0-9a-f]{12}, grafana, is revoked\n", revoked.stdout)
    listed = steno("token", "list")
    assert "grafana" not in listed.stdout
    assert listed.stderr == "1 expired or revoked not shown; --all lists every token\n"
    every = json.loads(steno("token", "list", "--all", "--json").stdout)["tokens"]
    assert [(token["name"], token["state"]) for token in every] == [("site", "valid"), ("grafana", "revoked")]
    assert secret.split("_", 2)[2] not in json.dumps(every)


def test_it_is_revoked_by_id_by_its_beginning_and_by_itself(steno: Steno) -> None:
    """And a second time it says so; each revocation is one event."""
    words = []
    for _ in range(3):
        made = json.loads(steno("token", "create", "--role", "read", "--json").stdout)
        words.append(made)
    for made, word in zip(words, (words[0]["token_id"], words[1]["token_id"][:6], words[2]["token"]), strict=True):
        done = json.loads(steno("token", "revoke", word, "--json").stdout)
        assert (done["token_id"], done["state"]) == (made["token_id"], "revoked")
        assert done["position"] is not None
    again = steno("token", "revoke", words[0]["token_id"], "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["position"] is None
    events = [json.loads(line) for line in steno("events", "--json").stdout.splitlines()]
    assert [event["type"] for event in events] == ["TokenCreated"] * 3 + ["TokenRevoked"] * 3


def test_a_name_is_one_tokens_while_it_is_valid(steno: Steno) -> None:
    """Records under a name belong to its token; after the revocation the name is free again."""
    assert steno("token", "create", "--role", "read", "--name", "site").returncode == 0
    assert "named site already" in refused(steno("token", "create", "--role", "read", "--name", "site"), 5)
    assert steno("token", "revoke", "site").returncode == 0
    assert steno("token", "create", "--role", "read", "--name", "site").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("create",), 2, "--role"),
        (("create", "--role", "root"), 2, "read"),
        (("create", "--role", "read", "--name", "a b"), 2, "cannot be a token's name"),
        (("create", "--role", "read", "--name", "loopback"), 2, "cannot be a token's name"),
        (("create", "--role", "read", "--name", "x\ny"), 2, "cannot be a token's name"),
        (("create", "--role", "read", "--expires", "soon"), 2, "neither a duration"),
        (("create", "--role", "read", "--expires", "0"), 2, "neither a duration"),
        (("create", "--role", "read", "--expires", "2020-01-01"), 2, "has already passed"),
        (("list",), 4, "record"),
        (("revoke", "site"), 4, "record"),
    ],
)
def test_what_cannot_be_is_one_line(steno: Steno, words: tuple[str, ...], code: int, line: str) -> None:
    """And the exit code of the manual."""
    assert line in refused(steno("token", *words), code)


def test_a_token_that_never_was_is_not_found(steno: Steno) -> None:
    """Exit 4, and where to look."""
    steno("token", "create", "--role", "read")
    assert "steno token list --all" in refused(steno("token", "revoke", "nobody"), 4)


def test_a_file_that_was_damaged_is_left_alone(steno: Steno, record_file: Path) -> None:
    """Exit 8, naming it; nothing is written over what somebody may still repair."""
    steno("token", "create", "--role", "read")
    path = Path(f"{record_file}.tokens")
    path.write_text("{")
    for words in (("create", "--role", "read"), ("list",), ("revoke", "x")):
        assert "is damaged" in refused(steno("token", *words), 8)
    assert path.read_text() == "{"
