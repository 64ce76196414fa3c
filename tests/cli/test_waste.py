"""`steno waste`, and the use of GPUs in `steno show`: pages, JSON, moments of the past, wrong words."""

import pytest
from stenotest.in_process import InProcess
from stenotest.sampled_record import IDLE, sampled_record

SINCE = ("--since", "2025-12-01")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    home = tmp_path_factory.mktemp("home")
    return InProcess(sampled_record(home).parent, COLUMNS="120")


def test_the_page_names_waste_and_what_to_ask_for(here: InProcess) -> None:
    page = here.page("waste", *SINCE, "--by", "run")
    rows = {line.split()[0]: line for line in page.splitlines() if line.strip()}
    assert "20 m 04 s" in rows["train"] or "64" in rows["train"]
    assert {"(idle)", "blind", "total"} <= set(rows)
    assert "1 run without samples of GPUs: unknown, not waste" in page
    asks = [line.split()[2:] for line in page.splitlines() if line.startswith("train  ada")]
    assert [words[:-1] for words in asks] == [
        ["cpus", "16", "1", "1.3", "4"], ["gpus", "4", "1", "1", "1"], ["memory_gb", "64", "1", "2.89", "8"]
    ]  # fmt: skip


def test_by_user_and_gpu_the_same_is_wasted(here: InProcess) -> None:
    by_user, by_gpu = here.json("waste", *SINCE), here.json("waste", *SINCE, "--by", "gpu")
    assert by_user["total"] == by_gpu["total"]
    assert [row["key"] for row in by_user["rows"]] == ["ada", "(idle)"]
    assert [row["key"] for row in by_gpu["rows"]] == ["MI300X:4"]
    assert by_user["total"]["unknown_runs"] == 1


def test_a_moment_before_the_idle_time_knows_none(here: InProcess) -> None:
    total = here.json("waste", *SINCE, "--at", "60")["total"]
    assert (total["usd"]["idle_inside"], total["seconds"]["working"], total["runs"]) == ("0.000000", 600, 1)


def test_a_time_without_machines_is_empty(here: InProcess) -> None:
    done = here("waste", "--since", "2026-05-01", "--by", "gpu")
    assert done.exit_code == 0
    assert "nothing was paid for in this range" in done.output
    assert here.json("waste", "--since", "2026-05-01")["rows"] == []


@pytest.mark.parametrize("words", [("--by", "day"), ("--since", "2999-01-01"), ("--since", "soon"), ("train",)])
def test_wrong_words_are_one_line(here: InProcess, words: tuple[str, ...]) -> None:
    done = here("waste", *words)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_show_draws_the_use_of_a_run_with_samples(here: InProcess) -> None:
    page = here.page("show", "train")
    assert "GPUs  working 28 %, idle 57 %, unknown 15 % of 35 m 14 s" in page
    assert "▂▁" in page
    assert "highest of a GPU: memory 40.0 GB, power 93 W" in page
    past = here.page("show", "train", "--at", "60")
    assert "idle 0 %" in past
    assert "GPUs  " not in here.page("show", "blind")


def test_show_gives_totals(here: InProcess) -> None:
    use = here.json("show", "train")["use"]
    assert use["seconds"]["working"] == 600
    assert use["seconds"]["idle"] == pytest.approx(IDLE, abs=5)
    assert [gpu["most"] for gpu in use["gpus"]] == [[80], [0], [2], [4]]
    assert here.json("show", "blind")["use"] is None
