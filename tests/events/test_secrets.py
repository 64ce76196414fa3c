"""No secret comes back: not from an answer, not from the bytes of the record, not from a trace."""

import json
import re
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from stenotest.records import START, poll_of, temporary_record

from steno.engine.providers.registry import READINGS
from steno.events.shape.secrets import scrub
from steno.events.shape.shape import BodyShape, compile_paths
from steno.events.store.record import Record
from steno.events.traces.trace import write_trace_line

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\n-----END OPENSSH PRIVATE KEY-----\n"
SECRETS = ("hunter2-env", "hunter2-job", "hunter2-registry", "hunter2-token", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE")


def answer() -> dict:
    job = {
        "env": {"HF_TOKEN": "hunter2-job", "EMPTY": ""},
        "registry_auth": {"username": "ada", "password": "hunter2-registry"},
        "ssh_key": {"private": KEY, "public": "ssh-ed25519 AAAA"},
        "commands": ["a command that is long enough to be stored as a part of its own, once"],
    }
    configuration = {"type": "task", "env": {"HF_TOKEN": "hunter2-env", "NOTHING": None}, "name": "a"}
    return {
        "id": "a",
        "status": "running",
        "cost": 0.5,
        "run_spec": {"run_name": "a", "configuration": configuration, "repo_creds": {"token": "hunter2-token"}},
        "jobs": [{"job_spec": job, "job_submissions": [{"id": "s", "status": "running"}]}],
    }


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())


def test_no_secret_is_in_any_byte_that_is_written(tmp_path: Path) -> None:
    """Neither record nor vault nor trace holds a value that was secret, wherever in whichever answer it stood."""
    bodies = (
        ("/api/runs/list", [answer()], True),
        ("/api/runs/list", [answer() | {"cost": 0.6}], True),
        ("/api/project/main/runs/get", answer(), True),
        ("/api/unknown", {"deep": [{"er": answer()}]}, True),
        ("/api/runs/list", {"detail": [{"input": answer(), "msg": "no"}]}, False),
    )
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        polls = [
            poll_of(msgspec.json.encode(body), path=path, at=START + n, answered=ok, status=200 if ok else 422)
            for n, (path, body, ok) in enumerate(bodies)
        ]
        broken = poll_of(
            b'{"env":{"A":"hunter2-env"},"x":NaN,"y":"' + json.dumps(KEY)[1:-1].encode() + b'"', at=START + 9
        )
        texts = [write_trace_line(record.scrubbed(poll)) for poll in (*polls, broken)]
        appended = record.append_polls([*polls, broken])
        texts += [write_trace_line(record.poll(result.position)) for result in appended]
        assert record.verify().ok
        everything = files(tmp_path) + b"".join(texts)
    everything += files(tmp_path)
    for secret in SECRETS:
        assert secret.encode() not in everything


def test_a_declared_secret_is_replaced_wherever_its_part_ends_up(tmp_path: Path) -> None:
    """In a cold part, in one too small to be cut out, and in an item that cannot be cut at all."""
    shape = BodyShape(kind="run", items="[]", cold=("spec",), secret=("spec.pin",))
    with temporary_record(tmp_path, shapes=lambda _path, _req: shape) as record:
        bodies = (
            b'[{"id":"a","spec":{"pin":"hunter2","x":"%s"}}]' % (b"-" * 80),
            b'[{"id":"a","spec":{"pin":"hunter2"}}]',
            b'[{"id":"a","id":"a","spec":{"pin":"hunter2","x":"%s"}}]' % (b"-" * 80),
            b'[ {"id":"a", "spec": {"pin" : "hunter2"} } ]',
            b'[{"id":"a","spec":{"p\\u0069n":"hunter2"}}]',
        )
        for appended in record.append_polls([poll_of(body) for body in bodies]):
            assert b"steno:secret:" in (record.poll(appended.position).body or b"")
        assert b"hunter2" not in files(tmp_path)


def test_equal_secrets_stay_equal_and_the_rest_stays_as_it_was(record: Record) -> None:
    """A commitment says that two values are the same, and nothing else; keys, nulls and empty values stay."""
    body = answer()
    body["jobs"][0]["job_spec"]["env"]["HF_TOKEN"] = "hunter2-env"
    record.append_polls([poll_of(msgspec.json.encode([body]))])
    back = json.loads(record.poll(1).body or b"")[0]
    configured, run = back["run_spec"]["configuration"]["env"], back["jobs"][0]["job_spec"]["env"]
    assert re.fullmatch("steno:secret:[0-9a-f]{64}", configured["HF_TOKEN"])
    assert configured == {"HF_TOKEN": run["HF_TOKEN"], "NOTHING": None}
    assert run["EMPTY"] == ""
    assert back["jobs"][0]["job_submissions"] == body["jobs"][0]["job_submissions"]


def test_a_commitment_is_left_alone(record: Record) -> None:
    """Text that Steno recorded and reads again does not change once more."""
    record.append_polls([poll_of(msgspec.json.encode([answer()]))])
    poll = record.poll(1)
    assert record.scrubbed(poll) == poll


def test_env_as_a_list_keeps_its_names() -> None:
    """`NAME=value` is how tasks may be written; a bare name takes the caller's own value and is not secret."""
    text = b'{"env":["HF_TOKEN=hunter2","DEBUG"],"commands":["echo A=b"]}'
    assert scrub(text, lambda _: b'"x"') == b'{"env":["HF_TOKEN=x","DEBUG"],"commands":["echo A=b"]}'


def test_keys_may_be_written_with_escapes_and_in_any_case() -> None:
    """A key that a JSON reader reads as `env` is `env`."""
    text = b'{"\\u0065nv":{"A":"1"},"ENV":{"B":"2"},"Password":"3"}'
    assert scrub(text, lambda _: b'"x"') == b'{"\\u0065nv":{"A":"x"},"ENV":{"B":"x"},"Password":"x"}'
    for alone in (b'{"apiKey":"hunter2"}', b'{"pRIVATE":"hunter2"}', b'{"Registry_Auth":{"a":"hunter2"}}'):
        assert b"hunter2" not in scrub(alone, lambda _: b'"x"')


def test_declared_paths_are_secret_and_only_they() -> None:
    """Lists, any keys and whole objects can be named; numbers are secrets too, words are not."""
    shape = BodyShape(kind="other", secret=("a.b", "list[].key", "any.*.c", "pins[]"))
    text = (
        b'{"a":{"b":{"x":["1",2,true,null]},"c":"4"},"list":[{"key":"5","other":"6"}],'
        b'"any":{"k":{"c":"7","d":"8"}},"pins":[9],"b":"10"}'
    )
    assert scrub(text, lambda _: b'"x"', compile_paths(shape)) == (
        b'{"a":{"b":{"x":["x","x",true,null]},"c":"4"},"list":[{"key":"x","other":"6"}],'
        b'"any":{"k":{"c":"x","d":"8"}},"pins":["x"],"b":"10"}'
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["env", "a", "token", "b", "creds"]) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


def expected(value: object, secret: bool, name: str | None) -> object:
    """The same by parsing, slowly."""
    if isinstance(value, dict):
        inside = secret or name in {"env", "creds"}
        return {
            key: expected(item, inside or (key == "token" and isinstance(item, str | int)), key)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [expected(item, secret or name in {"env", "creds"}, None) for item in value]
    if not secret or value is None or isinstance(value, bool) or value == "":
        return value
    return "x"


@given(JSON.filter(lambda value: "=" not in json.dumps(value)), st.sampled_from([None, 2]))
def test_the_walk_over_text_agrees_with_a_parser(value: object, indent: int | None) -> None:
    """Replacing in the text is replacing in the value, whatever the layout, and touches nothing else."""
    text = json.dumps(value, indent=indent).encode()

    def without_bare_names(each: object, name: str | None = None) -> object:
        if isinstance(each, list) and name == "env":
            return [x if isinstance(x, str) else without_bare_names(x) for x in each]
        return each

    scrubbed = json.loads(scrub(text, lambda _: b'"x"'))
    assert _bare(scrubbed) == _bare(expected(value, False, None))


def _bare(value: object, name: str | None = None) -> object:
    """The value without what stands as text in a list of variables, where a name alone is not secret."""
    if isinstance(value, dict):
        return {key: _bare(item, key) for key, item in value.items()}
    if isinstance(value, list):
        kept = [item for item in value if not (name in {"env", "creds"} and isinstance(item, str))]
        return [_bare(item) for item in kept]
    return value
