"""`help`, `man`, `open`, `watch`, `incidents` and `init`: what a newcomer reaches for first."""

import json
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner
from stenotest.command_line import Background, Steno, refused

from steno.cli.catalogue import HELP
from steno.cli.program import steno as program
from steno.cli.wiring.app import App
from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record

pytestmark = pytest.mark.slow
TRACES = Path(__file__).parent.parent / "traces" / "dstack-0.22.5"


def asked(*words: str, typed: str = "", **variables: str) -> tuple[int, str, str]:
    done = CliRunner(env=variables).invoke(program, words, input=typed, obj=App())
    return done.exit_code, done.stdout, done.stderr


def test_help_is_the_page_of_the_command(steno: Steno) -> None:
    assert steno("help", "token", "create").stdout == steno("token", "create", "--help").stdout
    assert steno("help").stdout == steno("--help").stdout
    assert "did you mean submit?" in refused(steno("help", "sumbit"), 2)
    assert "there is no command 'ps more'" in refused(steno("help", "ps", "more"), 2)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.long)])
def test_every_command_has_a_man_page(steno: Steno, tmp_path: Path, every: int) -> None:
    """Made from the help texts; roff reads each (without `long` each ninth) without a warning."""
    done = json.loads(steno("man", "--install", "--into", tmp_path, "--json").stdout)
    pages = {path.stem for path in tmp_path.glob("*.1")}
    assert pages == set(done["pages"])
    assert pages >= {"steno", "steno-token-create", *(f"steno-{name}" for name in HELP)}
    text = (tmp_path / "steno-submit.1").read_text()
    assert ".SH EXAMPLES" in text
    assert "steno submit \\-\\-wait \\-\\- make test" in text
    man = shutil.which("man")
    if man is not None:
        for page in sorted(tmp_path.glob("*.1"))[::every]:
            read = subprocess.run([man, "--warnings", "-l", "-E", "UTF-8", page], capture_output=True, check=True)
            assert not read.stderr, page
    assert "leave the command out" in refused(steno("man", "ps", "--install"), 2)


def test_open_knows_the_port_of_the_service_that_runs(steno: Steno, background: Background) -> None:
    """Another than that of the settings; the file of a service that was killed leads nowhere."""
    for end in (signal.SIGTERM, signal.SIGKILL):
        service = background("up", "--port", "0", out=subprocess.PIPE)
        assert service.stdout is not None
        url = next(line for line in service.stdout if "serving" in line).split("serving ")[1].split()[0]
        assert steno("open", "--print", STENO_API_PORT="9").stdout.strip() == url
        service.send_signal(end)
        service.wait()
        assert steno("open", "--print", STENO_API_PORT="9").stdout.strip() == "http://127.0.0.1:9"


def test_open_says_how_to_get_a_dashboard_or_opens_it(steno: Steno) -> None:
    steno("submit", "--wait", "--name", "seen", "--", "true")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
        run_id = json.loads(steno("show", "seen", "--json").stdout)["run_id"]
        url = f"http://127.0.0.1:{port}/runs/{run_id}"
        assert steno("open", "seen", "--print", STENO_API_PORT=port).stdout.strip() == url
        assert steno("open", "seen", STENO_API_PORT=port, BROWSER="true %s").stdout.strip() == url
    assert "start `steno serve`" in refused(steno("open", STENO_API_PORT=port), 3)


def test_watch_ends_with_the_runs_that_are_named(steno: Steno) -> None:
    steno("submit", "--name", "good", "--", "sleep 0.5")
    done = steno("watch", "good")
    assert done.returncode == 0
    assert "succeeded" in done.stdout.splitlines()[-1]
    steno("submit", "--name", "bad", "--", "exit 3")
    lines = steno("watch", "good", "bad", "--json")
    assert lines.returncode == 1
    assert {json.loads(line)["name"] for line in lines.stdout.splitlines()} == {"good", "bad"}
    assert "there is no run" in refused(steno("watch", "nobody"), 4)


def test_incidents_are_listed_newest_first(steno: Steno, tmp_path: Path) -> None:
    """An unknown word is an anomaly with its poll; a server that restarted leaves a gap."""
    steno("submit", "--wait", "--", "true")
    assert steno("incidents").stdout == "No incidents: every answer was as expected, and no source was silent.\n"
    trace = zstandard.ZstdDecompressor().stream_reader((TRACES / "server_restart.jsonl.zst").read_bytes()).read()
    odd = tmp_path / "odd.jsonl"
    odd.write_bytes(re.sub(rb'("status": ?)"running"', rb'\1"frobnicating"', trace))
    assert odd.read_bytes() != trace
    steno("import", odd)
    answer = json.loads(steno("incidents", "--json").stdout)
    assert {anomaly["kind"] for anomaly in answer["anomalies"]} >= {"schema_drift"}
    assert len(answer["blind"]) == 1
    positions = [anomaly["position"] for anomaly in answer["anomalies"]]
    assert positions == sorted(positions, reverse=True)
    assert "frobnicating" in (page := steno("incidents").stdout)
    assert answer["blind"][0]["kind"] == "no_answer"
    assert "no answer" in page
    assert "not polled" not in page
    assert json.loads(steno("incidents", "-n", "1", "--json").stdout)["more"] == (len(positions) > 1)


def test_without_an_answer_nobody_says_that_every_source_answered(steno: Steno, place: str) -> None:
    """A record without a poll, and one of a server that never answered, are two things, and neither is all well."""
    with Record.open(place, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()):
        pass
    assert steno("incidents").stdout == "No incidents: no source has been polled.\n"
    nowhere = {"STENO_DSTACK_URL": "http://127.0.0.1:9", "DSTACK_TOKEN": "x", "STENO_PROJECT": "main"}
    refused(steno("submit", "--provider", "dstack", "--image", "x", "--", "true", STENO_BUDGET="off", **nowhere), 3)
    assert steno("incidents").stdout == "No incidents, but dstack/main has never answered.\n"


def test_init_asks_checks_and_writes_what_config_then_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong answer is asked for again; the file that exists stays."""
    monkeypatch.chdir(tmp_path)
    here = {"HOME": str(tmp_path), "STENO_RECORD": "", "STENO_PROVIDER": ""}
    code, out, err = asked("init", typed="dstck\ndstack\nmain\n12m\n\nabc\n50\n\n", **here)
    assert (code, out) == (0, "steno.toml\n")
    assert "must be one of local, dstack, slurm" in err
    settings = json.loads(asked("config", "--json", **here)[1])["settings"]
    written = {name: setting["value"] for name, setting in settings.items() if "steno.toml" in setting["source"]}
    assert written == {"provider": "dstack", "project": "main", "vms.idle_timeout": "12m", "budget.total": "50"}
    before = Path("steno.toml").read_text()
    asked("init", "--yes", **here)
    assert Path("steno.toml").read_text() == before
    code, _, err = asked("init", "--yes", "--force", "--set", "vms.idel_timeout=1m", **here)
    assert code == 2
    assert "did you mean vms.idle_timeout" in err


def test_init_asks_for_the_login_node_and_takes_no_number_for_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong host is asked for again, a budget may have its sign, and a number is not a path."""
    monkeypatch.chdir(tmp_path)
    here = {"HOME": str(tmp_path), "STENO_RECORD": "", "STENO_PROVIDER": "", "STENO_SLURM_HOST": ""}
    code, _, err = asked("init", typed="slurm\nlogin node\nme@login\n\n\n\n$100\n100\nsteno.db\n", **here)
    assert code == 0
    assert "a host as ssh knows it" in err
    assert "'100', a number; a file of that name is ./100" in err
    settings = json.loads(asked("config", "--json", **here)[1])["settings"]
    written = {name: setting["value"] for name, setting in settings.items() if "steno.toml" in setting["source"]}
    wanted = {"provider": "slurm", "slurm.host": "me@login", "budget.total": "100", "record": "steno.db"}
    assert {name: written[name] for name in wanted} == wanted
    assert len(written) == len(wanted)
