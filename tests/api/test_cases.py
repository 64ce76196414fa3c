"""`/api/cases`: what the rules saw, as JSON and CSV, now and before."""

import csv
from io import StringIO

import httpx
import pytest


def test_cases_as_json_and_csv_and_at_a_moment_before(reader: httpx.Client) -> None:
    """The same rows; a moment before knows only what was seen by then."""
    answer = reader.get("/api/cases").json()
    rows = list(csv.DictReader(StringIO(reader.get("/api/cases?format=csv").text)))
    assert [(int(row["case"]), row["words"]) for row in rows] == [
        (row["case"], row["words"]) for row in answer["cases"]
    ]
    middle = answer["cases"][len(answer["cases"]) // 2]["first_position"]
    then = reader.get("/api/cases", params={"at": middle}).json()
    assert [row["case"] for row in then["cases"]] == [
        row["case"] for row in answer["cases"] if row["first_position"] <= middle
    ]
    reached = {each["rule"] for row in answer["cases"] for each in row["judged"]}
    assert not reached & {rule["rule"] for rule in answer["unseen"]}
    page = reader.get(f"/api/cases/{answer['cases'][0]['case']}").json()
    assert page["examples"][0]["position"] == answer["cases"][0]["first_position"]


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/api/cases/99999", 404, "there is no case 99999"),
        ("/api/cases/nobody", 404, "'nobody' is not the number of a case"),
        ("/api/cases?left=nobody", 404, "No rule set 'nobody'"),
        ("/api/cases?left=2025-12-sdk", 400, "sees more than cases"),
        ("/api/cases?state=lost", 400, "it must be one of"),
    ],
)
def test_what_is_not_there_is_said(reader: httpx.Client, path: str, status: int, detail: str) -> None:
    answer = reader.get(path)
    assert (answer.status_code, detail in answer.json()["detail"]) == (status, True), answer.text
