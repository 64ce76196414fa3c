"""`steno whatif`: pages, JSON, and what it says where there is nothing to predict from."""

import pytest
from stenotest.history_file import record_of_history
from stenotest.in_process import InProcess
from stenotest.policies import HISTORIES, RECORDED

from steno.cli.wiring.errors import exit_code_of


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    """The command on a record of a genuine server."""
    home = tmp_path_factory.mktemp("whatif")
    record_of_history(HISTORIES / f"{RECORDED}.jsonl.zst", home / "record.db")
    return InProcess(home, COLUMNS="140")


def test_a_policy_stands_beside_the_record(here: InProcess) -> None:
    """With bounds, and with the error of the recorded policy."""
    page = here.page("whatif", "--idle-timeout", "5m", "--max-vms", "1", "--price", "2.49", "--policy", "pool")
    assert "\nrecorded" in page
    assert "\npolicy=pool, idle-timeout=5m, max-vms=1, price=$2.49/h" in page
    assert "Error of the recorded policy, predicted alike: " in page


def test_the_same_as_json(here: InProcess) -> None:
    """Unrounded."""
    answer = here.json("whatif", "--validate")
    (prediction,) = answer["predictions"]
    assert prediction["policy"] == "as recorded"
    assert prediction["best"] == answer["validation"]
    assert abs(answer["error"]) < 0.01
    assert prediction["low"]["bill_usd"] <= answer["recorded"]["bill_usd"] <= prediction["high"]["bill_usd"]
    assert answer["position"] > 0


def test_a_sweep_marks_the_cheapest_that_keeps_the_waits(here: InProcess) -> None:
    """A line and a bar for each policy."""
    page = here.page("whatif", "--sweep", "max-vms=1..3", "--keep-p95", "1h")
    lines = [line for line in page.splitlines() if line.startswith("max-vms=")]
    assert [line.split()[0] for line in lines] == ["max-vms=1", "max-vms=2", "max-vms=3"]
    assert sum("◀ cheapest" in line for line in lines) == 1
    assert "No policy here keeps" in here.page("whatif", "--sweep", "max-vms=1,2", "--keep-p95", "1s")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "name a policy"),
        (("--validate", "--price", "1"), "leave the other policies out"),
        (("--sweep", "idle-timeout=9m..3m"), "a range from less to more"),
        (("--sweep", "price=1..2"), "is not idle-timeout=1m..30m"),
        (("--sweep", "max-vms=1..3", "--max-vms", "2"), "is swept"),
        (("--price", "2", "--keep-p95", "2m"), "marks the cheapest policy of a --sweep"),
        (("--price", "-1"), "dollars an hour above 0"),
        (("--validate", "--since", "2026-01-02", "--until", "2026-01-01"), "later than the end of the window"),
    ],
)
def test_a_wrong_question_is_a_usage_error(here: InProcess, words: tuple[str, ...], line: str) -> None:
    """Nothing is read, and nothing printed on stdout."""
    done = here("whatif", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert line in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--until", "2026-01-01"), "No run was submitted through Steno between 2025-12-02T00:00:00Z and 2026-01-01"),
        (("--source", "dstack/other"), "No source dstack/other in the record; `steno sources` lists them."),
    ],
)
def test_where_nothing_is_recorded_it_says_so(
    here: InProcess, words: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a line, with exit code 4."""
    error = here("whatif", "--validate", *words).exception
    assert error is not None
    assert exit_code_of(error) == 4
    assert capsys.readouterr().err.startswith(f"steno: {line}")
