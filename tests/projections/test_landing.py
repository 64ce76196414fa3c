"""Where a browser goes after a login: within the origin, whatever the link to the login page says."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

MODULE = Path(__file__).parent.parent.parent / "projections/dashboard/assets/js/core/landing.js"
ORIGIN = "http://127.0.0.1:8642"
PARTS = (
    "/", "\\", "\t", "\n", "\r", "\0", " ", ".", "..", "@", ":", "?", "#", "%2f", "%5c", "%09", "／", "。", "[", "]",
    "evil.example", "http", "https:", "javascript:alert(1)", "blob:", "data:", ORIGIN, "127.0.0.1", ":8642", "runs",
)  # fmt: skip
nexts = st.lists(st.sampled_from(PARTS), max_size=7).map("".join) | st.text()


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str | None], str]]:
    """The address for a `next`, by the dashboard's own module in a real JavaScript engine."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node here: `apt-get install nodejs`")
    folder = tmp_path_factory.mktemp("landing")
    (folder / "landing.mjs").write_text(MODULE.read_text())
    (folder / "answer.mjs").write_text(
        'import { createInterface } from "node:readline";\nimport { landing } from "./landing.mjs";\n'
        "for await (const line of createInterface({ input: process.stdin }))\n"
        f'  console.log(JSON.stringify(landing(JSON.parse(line), "{ORIGIN}")));\n'
    )
    with subprocess.Popen(
        [node, folder / "answer.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, back = process.stdin, process.stdout

        def ask(text: str | None) -> str:
            to.write(json.dumps(text) + "\n")
            to.flush()
            return str(json.loads(back.readline()))

        yield ask


@given(nexts)
@example("/\\evil.example")
@example("/\t/evil.example")
@example("/\n\\evil.example")
@example("/.//evil.example")
@example("//evil.example")
@example(f"blob:{ORIGIN}/x")
@example(f"http://evil.example@{ORIGIN[7:]}/")
@example(f"{ORIGIN}.evil.example/")
@example("javascript:alert(1)")
def test_nobody_leaves_the_origin_by_a_login(landed: Callable[[str | None], str], text: str) -> None:
    """An absolute address of this host and port, which no parser reads as another's."""
    where = landed(text)
    assert where.startswith(f"{ORIGIN}/")
    assert "\\" not in where.partition("?")[0].partition("#")[0]
    assert not {"\t", "\n", "\r"} & set(where)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (None, "/"),
        ("", "/"),
        ("/runs?state=failed&at=5#lines", "/runs?state=failed&at=5#lines"),
        (f"{ORIGIN}/costs", "/costs"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("https://evil.example/", "/"),
        ("http://[", "/"),
    ],
)
def test_a_login_leads_back_to_the_page_that_asked(
    landed: Callable[[str | None], str], text: str | None, where: str
) -> None:
    """With its query; anything else is the overview."""
    assert landed(text) == ORIGIN + where
