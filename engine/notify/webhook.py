"""The webhook: its address, the signed messages that are sent to it, and its answers."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

import msgspec

from steno.engine.deadline import Deadline
from steno.engine.money.costs import Costs
from steno.engine.money.use_split import split_of_run
from steno.engine.notify.news import ANOMALY, ORPHAN, RUN_END, START, STUCK, VANISHED, WAIT, NewsItem
from steno.engine.notify.routes import Route
from steno.engine.objects import run_object
from steno.engine.rules.sets import CURRENT
from steno.engine.rules.why_ended import cause
from steno.engine.state.changes import Anomaly, AnomalyKind
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.engine.state.vm import Vm
from steno.engine.state.world import World
from steno.engine.wire import rate, usd
from steno.events import types
from steno.events.clock import SECOND, duration, format_second
from steno.events.types import BudgetCrossed

TIMEOUT = 10.0  # seconds for each of connecting, writing and waiting for the answer
TOTAL = 30.0
"""Seconds for a whole attempt: at most four run at a time, and a slow answer would delay every other notice."""
Outcome = types.NoticeDelivered | types.NoticeFailed


def outcome_of(notice_id: str, attempt: int, status: int | None, error: str | None, *, final: bool) -> Outcome:
    """The outcome of an attempt as an event. `final`: a failed one is not retried."""
    if error is None:
        return types.NoticeDelivered(notice_id=notice_id, status=200 if status is None else status, attempt=attempt)
    return types.NoticeFailed(notice_id=notice_id, error=error, attempt=attempt, final=final)


def sign(secret: str, moment: int, body: bytes) -> str:
    """The value of `X-Steno-Signature`: `t=<unix seconds>,v1=<hex HMAC-SHA256 of "<t>.<body>">`."""
    digest = hmac.new(secret.encode(), b"%d." % moment + body, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


def headers_of(route: Route, notice_id: str, body: bytes, now: int) -> dict[str, str]:
    """The headers of one attempt made `now` (seconds since the epoch), the signature among them."""
    headers = {"Content-Type": "application/json", "User-Agent": "steno", "X-Steno-Notice": notice_id}
    if route.secret is not None:
        headers["X-Steno-Signature"] = sign(route.secret, now, body)
    return headers


def send(url: str, body: bytes, headers: dict[str, str], who: str = "the webhook") -> tuple[int | None, str | None]:
    """(HTTP status, error); the address is not in the error, which calls it `who`."""
    import httpx

    try:
        with (
            Deadline(TOTAL) as deadline,
            httpx.Client(timeout=TIMEOUT) as client,
            client.stream("POST", url, content=body, headers=headers, extensions=deadline.extensions) as answer,
        ):
            status = answer.status_code  # the body is not read
    except httpx.RemoteProtocolError as error:
        # its text quotes what the server sent, which may repeat the address
        return None, f"no answer ({type(error).__name__}: not a proper answer)"
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return None, f"no answer ({type(error).__name__}: {error})".replace(url, who)
    return status, None if 200 <= status < 300 else f"{who} answered {status}"


# -- messages: a sentence for people, blocks that Slack shows, and fields for programs. `text` and `blocks` are Slack's,
# escaped as Slack asks (`&`, `<`, `>`): no name of a run calls a whole channel.

_LONGEST = 2900  # characters of a block: Slack takes 3,000
_DETAIL = 300
_NAMED = 10  # facts a digest names; the others are counted
_LATE = 300 * SECOND  # a run that ended longer ago is reported with its time

Fields = dict[str, Any]


def envelope(text: str, link: str | None, fields: Fields) -> bytes:
    """The JSON text of a notice. `fields` are ours, beside Slack's."""
    text = _one_line(text)
    line = _escaped(text if link is None else f"{text} {link}")
    section_text = _escaped(text)[:_LONGEST]
    block = section_text if link is None else f"{section_text}\n<{_escaped(link)}|Show in Steno>"
    section = {"type": "section", "text": {"type": "mrkdwn", "text": block}}
    return msgspec.json.encode({"text": line} | fields | {"blocks": [section]})


def budget_text(crossed: BudgetCrossed) -> str:
    """`Steno: $1120.40 of $1400.00 are spent: the alert at 80 % of the budget`."""
    share = f"{crossed.threshold / 10:g}"
    return f"Steno: {usd(crossed.spent)} of {usd(crossed.total)} are spent: the alert at {share} % of the budget"


def message_of(fact: NewsItem, state: World, now: int) -> tuple[str, str, Fields]:
    """(text, path of its page, fields) of one fact."""
    match fact.subject:
        case Run() as run if fact.kind != RUN_END:
            fields = {"run": run_object(run, CURRENT, None, None), "detail": fact.detail}
            return f"Steno: {_line(fact, state)}", f"/runs/{run.run_id}", fields
        case Vm(vm_id=vm_id):
            return f"Steno: machine {_line(fact, state)}", f"/machines/{vm_id}", _entry(fact, state)
        case Run() as run:
            costs, ended = Costs(state), cause(run)
            cost, use = costs.of_run(run.run_id), split_of_run(costs, run.run_id)
            fields = {"position": run.transitions[-1].position, "run": run_object(run, CURRENT, cost, use)}
            fields |= msgspec.structs.asdict(ended)
            text = _run_text(run, cost, now)
            return f"{text}. {ended.why}" if run.state is State.FAILED else text, f"/runs/{run.run_id}", fields
        case Anomaly() as anomaly:
            kind, _, name = anomaly.subject.partition("/")
            vm = state.vms.get(name)
            if fact.kind == ORPHAN and vm is not None:
                return _orphan(anomaly, vm)
            text = f"Steno: {anomaly.kind.value}: {_who(anomaly.subject, state)}: {_clipped(anomaly.detail)}"
            page = {"run": f"/runs/{name}", "vm": f"/machines/{name}"}.get(kind, "/incidents")
            values = msgspec.structs.asdict(anomaly)
            return text, page, {"anomaly": values.pop("kind"), **values}


def digest(facts: Sequence[NewsItem], state: World) -> tuple[str, str, Fields]:
    """(text, path of its page, fields) of several facts of one kind, reported together."""
    lines, mixed = [_one_line(_line(fact, state)) for fact in facts], len({fact.kind for fact in facts}) > 1
    more = f", and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    named = "; ".join(lines[:_NAMED]) + more
    ends = sorted(fact.subject.state.value for fact in facts if isinstance(fact.subject, Run))
    counts = ", ".join(f"{ends.count(end)} {end}" for end in dict.fromkeys(ends))
    what, page, key = {
        RUN_END: (f"runs ended ({counts})", "/runs", "runs"),
        ORPHAN: ("machines may be billed without need", "/machines", "anomalies"),
        ANOMALY: ("anomalies", "/incidents", "anomalies"),
        START: ("runs started", "/runs", "runs"),
        STUCK: ("runs are stuck", "/incidents", "runs"),
        WAIT: ("runs have waited for too long", "/runs", "runs"),
        VANISHED: ("machines vanished", "/incidents", "machines"),
        "": ("notices of the quiet hours", "/", "facts"),
    }["" if mixed else facts[0].kind]
    entries = [_entry(fact, state) | ({"kind": fact.kind} if mixed else {}) for fact in facts]
    fields = {"count": len(facts), key: entries, "lines": lines}
    return f"Steno: {len(facts)} {what}: {named}", page, fields


def _line(fact: NewsItem, state: World) -> str:
    match fact.subject:
        case Run() as run:
            words = {START: "started", STUCK: f"is stuck: {fact.detail}", WAIT: f"waits: {fact.detail}"}
            return f"{run.name or run.run_id} {words.get(fact.kind) or _verdict(run)}"
        case Vm() as vm:
            there = [_who(f"run/{occupancy.run_id}", state) for occupancy in vm.occupancies[-1:]]
            last = f"; the last run on it was {there[0]}" if there else ""
            return f"{vm.facts.name or vm.provider_id} of {vm.source} vanished: {fact.detail}{last}"
        case Anomaly() as anomaly:
            return f"{_who(anomaly.subject, state)}: {anomaly.kind.value}"


def _entry(fact: NewsItem, state: World) -> Fields:
    match fact.subject:
        case Run() as run:
            reason = None if run.reason is None else run.reason.value
            return {"run_id": run.run_id, "name": run.name, "state": run.state.value, "reason": reason}
        case Vm() as vm:
            known = {"vm_id": vm.vm_id, "provider_id": vm.provider_id, "name": vm.facts.name, "source": vm.source}
            return known | {"detail": fact.detail, "runs": list(vm.runs[-_NAMED:])}
        case Anomaly() as anomaly:
            return msgspec.structs.asdict(anomaly) | {"of": _who(anomaly.subject, state)}


def _run_text(run: Run, cost: int | None, now: int) -> str:
    """`Steno: matmul-1 succeeded (exit_zero), ran 2s, cold start, cost $0.0029`."""
    parts = [f"Steno: {run.name or run.run_id} {_verdict(run)}"]
    ran = run.finished_at - run.started_at if run.started_at is not None and run.finished_at is not None else 0
    if ran > 0:
        parts.append(f"ran {duration(ran)}")
    if run.start is not None:
        parts.append(f"{run.start} start")
    if cost is not None and run.links:
        parts.append(f"cost {usd(cost)}")
    text = ", ".join(parts)
    late = run.finished_at is not None and now - run.finished_at > _LATE
    return f"{text}; it ended {format_second(run.finished_at or 0)}" if late else text


def _verdict(run: Run) -> str:
    reason = "" if run.reason is None else run.reason.value
    if run.exit_status:
        reason += f", exit {run.exit_status}"
    return f"{run.state.value} ({reason})" if reason else run.state.value


def _orphan(anomaly: Anomaly, vm: Vm) -> tuple[str, str, Fields]:
    name = vm.facts.name or vm.provider_id
    cost = "" if vm.facts.price is None else f" at {rate(vm.facts.price)}"
    what = (
        "a machine that no known run requested"
        if anomaly.kind is AnomalyKind.ORPHAN
        else "a machine that should be gone was not seen gone and may still be billed"
    )
    text = f"Steno: {what}: {name} of {vm.source}{cost}: {_clipped(anomaly.detail)}"
    fields = {
        "anomaly": anomaly.kind.value,
        "vm_id": vm.vm_id,
        "provider_id": vm.provider_id,
        "name": vm.facts.name,
        "source": vm.source,
        "position": anomaly.position,
        "detail": anomaly.detail,
    }
    return text, f"/machines/{vm.vm_id}", fields


def _who(subject: str, state: World) -> str:
    kind, _, name = subject.partition("/")
    if kind == "run" and (run := state.runs.get(name)) is not None:
        return run.name or name
    if kind == "vm" and (vm := state.vms.get(name)) is not None:
        return vm.facts.name or vm.provider_id
    return name


def _clipped(text: str) -> str:
    line = _one_line(text)
    return line if len(line) <= _DETAIL else line[: _DETAIL - 1] + "…"


def _one_line(text: str) -> str:
    """Without breaks and control characters: the name of a run adds no line to a mail."""
    return "".join(char if char.isprintable() else "\ufffd" for char in " ".join(text.split()))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
