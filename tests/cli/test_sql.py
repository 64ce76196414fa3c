"""`steno sql` and the tables of `steno export`: their forms, their moment, and what they say where they cannot."""

import csv
import gzip
import json
from io import StringIO
from pathlib import Path

import pytest
from stenotest.command_line import Steno

TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "retry_success.jsonl.zst"
QUESTION = "select name, usd(cost_microusd) as cost, evidence, submitted_at, attempts > 1 as again from runs"


def test_three_forms_say_the_same(imported: Steno) -> None:
    """JSON Lines with stable keys, CSV, and a table."""
    (row,) = map(json.loads, imported("sql", QUESTION, "--json").stdout.splitlines())
    assert list(row) == ["name", "cost", "evidence", "submitted_at", "again"]
    assert row["name"] == "retry-run"
    assert row["cost"] == json.loads(imported("show", "retry-run", "--json").stdout)["cost_usd"]
    assert row["submitted_at"].endswith("Z")
    (line,) = csv.DictReader(StringIO(imported("sql", QUESTION, "--csv").stdout))
    assert line == {
        "name": row["name"], "cost": row["cost"], "evidence": json.dumps(row["evidence"]).replace(" ", ""),
        "submitted_at": row["submitted_at"], "again": str(row["again"]).lower(),
    }  # fmt: skip
    head, cells = imported("sql", QUESTION).stdout.splitlines()
    assert head.split() == list(row)
    assert row["cost"] in cells


def test_a_statement_comes_from_a_file_or_from_standard_input(imported: Steno, home: Path) -> None:
    """Also a statement that reads the tables twice, with a comment."""
    text = "-- how many\nselect count(*) as n\nfrom runs a join runs b using (run_id);\n"
    (home / "question.sql").write_text(text)
    for words, stdin in ((("-f", "question.sql"), None), (("-f", "-"), text), ((), text), (("-",), text)):
        done = imported("sql", *words, "--json", stdin=stdin)
        assert json.loads(done.stdout) == {"n": 1}, done.stderr


def test_a_moment_is_asked_as_it_was(imported: Steno) -> None:
    """By position; and a moment beyond the end is refused."""
    count = "select count(*) as polls, (select count(*) from runs where state = 'succeeded') as ends from polls"
    then = json.loads(imported("sql", count, "--at", "40", "--json").stdout)
    now = json.loads(imported("sql", count, "--json").stdout)
    assert then["polls"] <= 40 < now["polls"]
    assert (then["ends"], now["ends"]) == (0, 1)
    assert imported("sql", count, "--at", "99999").returncode == 2


def test_tables_are_described(imported: Steno) -> None:
    """Without a record, too; by the same names that a statement uses."""
    answer = json.loads(imported("sql", "--tables", "--json").stdout)
    names = ", ".join(f"{table['table']}.{column['name']}" for table in answer for column in table["columns"])
    tables = " cross join ".join(table["table"] for table in answer)
    assert imported("sql", f"select {names} from {tables} limit 0").returncode == 0
    text = imported("sql", "--tables").stdout
    assert all(column["meaning"] in text for table in answer for column in table["columns"])


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (("sql", "selec 1"), 2, "syntax error"),
        (("sql", "select nothing from runs"), 2, "nothing"),
        (("sql", "copy runs to 'x.csv'"), 2, "not allowed"),
        (("sql", "select * from read_csv('/etc/hostname')"), 2, "disabled"),
        (("sql", "select 1", "-f", "x.sql"), 2, "one of them"),
        (("sql", "select 1", "--csv", "--json"), 2, "one of them"),
        (("sql", "-f", "missing.sql"), 4, "missing.sql"),
        (("sql", "-f", "binary.sql"), 2, "UTF-8"),
        (("sql", "select 1", "--record", "missing.db"), 4, "missing.db"),
        (("export",), 2, "--trace"),
        (("export", "--format", "csv"), 2, "-o"),
        (("export", "--format", "csv", "run", "-o", "out"), 2, "did you mean runs"),
        (("export", "--format", "csv", "-o", "binary.sql"), 2, "binary.sql"),
        (("export", "--format", "csv", "--from", "1h", "-o", "out"), 2, "--at"),
        (("export", "--trace", "x.jsonl", "-o", "out"), 2, "--from"),
        (("export", "a", "b", "--trace", "x.jsonl"), 2, "one RUN"),
        (("export", "--format", "perfetto"), 2, "-o FILE.json"),
        (("export", "--format", "perfetto", "-o", "x.txt"), 2, "-o FILE.json"),
        (("export", "--format", "perfetto", "-o", "x.json", "--trace", "y.jsonl"), 2, "--trace FILE, or --format"),
        (("export", "--format", "perfetto", "-o", "x.json", "nobody"), 4, "no run 'nobody'"),
        (("export", "--format", "perfetto", "-o", "x.json", "--from", "soon"), 2, "not a time"),
        (("export", "--format", "perfetto", "-o", "no/x.json"), 4, "no/x.json"),
    ],
)
def test_what_cannot_be_is_one_line(imported: Steno, home: Path, words: tuple[str, ...], code: int, line: str) -> None:
    """With a documented exit code, and nothing written."""
    (home / "binary.sql").write_bytes(b"\xff\xfe")
    before = files(home)
    done = imported(*words)
    assert (done.returncode, len(done.stderr.splitlines()), done.stdout) == (code, 1, ""), done.stderr
    assert line in done.stderr
    assert files(home) == before


def files(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir() if not path.name.startswith("record.db"))


def test_tables_become_files(imported: Steno, home: Path) -> None:
    """All of them, or those named, in either format."""
    done = imported("export", "--format", "parquet", "-o", "all", "--json")
    written = json.loads(done.stdout)["tables"]
    assert sorted(path.name for path in (home / "all").iterdir()) == sorted(
        f"{table['table']}.parquet" for table in written
    )
    assert all(table["rows"] for table in written if table["table"] != "samples")
    assert imported("export", "runs", "costs", "--format", "csv", "-o", "two/deep", "--at", "40").returncode == 0
    assert sorted(path.name for path in (home / "two" / "deep").iterdir()) == ["costs.csv", "runs.csv"]


def test_a_timeline_is_a_file(imported: Steno, home: Path) -> None:
    """Plain or packed, of all or of a part."""
    done = imported("export", "--format", "perfetto", "-o", "all.json", "--json")
    whole = json.loads((home / "all.json").read_bytes())["traceEvents"]
    assert json.loads(done.stdout) == {"trace": "all.json", "events": len(whole)}
    assert imported("export", "--format", "perfetto", "-o", "all.json.gz").returncode == 0
    assert json.loads(gzip.decompress((home / "all.json.gz").read_bytes()))["traceEvents"] == whole
    run = imported("sql", "select run_id from runs limit 1", "--csv").stdout.split()[-1]
    part = imported("export", "--format", "perfetto", "-o", "part.json", run, "--from", "20", "--to", "60")
    assert (part.returncode, "ui.perfetto.dev" in part.stdout) == (0, True), part.stderr
    assert 0 < len(json.loads((home / "part.json").read_bytes())["traceEvents"]) < len(whole)
    assert not list(home.glob("*.part"))


def test_postgresql_answers_alike(imported: Steno, postgres_url: str) -> None:
    """The same statement, byte for byte; and the same files."""
    assert imported("db", "copy", "record.db", postgres_url).returncode == 0
    for statement in (QUESTION, "select position, hash from events"):
        here, there = (imported("sql", statement, "--csv", "--record", at) for at in ("record.db", postgres_url))
        assert here.stdout
        assert (here.returncode, here.stdout) == (there.returncode, there.stdout), there.stderr
    done = imported("export", "--format", "csv", "-o", "out", "--record", postgres_url)
    assert done.returncode == 0, done.stderr


def test_a_missing_library_is_named(imported: Steno, home: Path) -> None:
    """With what to install."""
    (home / "duckdb.py").write_text("raise ImportError('not installed')\n")
    done = imported("sql", "select 1", PYTHONPATH=str(home))
    assert done.returncode == 2
    assert "setup EXTRAS=questions`" in done.stderr
    assert imported("export", "runs", "--format", "csv", "-o", "out").returncode == 0
