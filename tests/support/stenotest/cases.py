"""Cases as a rule may see them: strategies for properties."""

from random import Random
from typing import Any

from hypothesis import strategies as st

from steno.engine.rules.cases import AttemptCase, RunCase
from steno.engine.state.states import PROGRESS, Reason

STATES = st.sampled_from((None, *PROGRESS[1:]))
CAUSES = st.none() | st.sampled_from(list(Reason))
ATTEMPTS = st.builds(
    AttemptCase,
    ended=st.booleans(),
    state=STATES,
    failed=st.booleans(),
    cause=CAUSES,
    retried=st.booleans(),
    exit_status=st.sampled_from((None, 0, 1, 2, 137, 139)),
    decides=st.booleans(),
)
CASES = st.builds(
    RunCase,
    final=st.booleans(),
    finite=st.booleans(),
    requeued=st.booleans(),
    scheduled=st.booleans(),
    state=STATES,
    failed=st.booleans(),
    cause=CAUSES,
    stopped_by_policy=st.booleans(),
    bare=st.booleans(),
    attempts=st.lists(ATTEMPTS, max_size=3, unique=True).map(tuple),
)


def many_cases(seed: int) -> list[RunCase]:
    """Fifty cases, as `CASES` has them; a draw of Hypothesis takes a hundred times as long."""
    draw = Random(seed)

    def words(*flags: str) -> dict[str, Any]:
        cause, state = draw.choice((None, draw.choice(list(Reason)))), draw.choice((None, *PROGRESS[1:]))
        return {"state": state, "cause": cause, **{flag: draw.random() < 0.5 for flag in flags}}

    def attempt() -> AttemptCase:
        status = draw.choice((None, 0, 1, 2, 137, 139))
        return AttemptCase(exit_status=status, **words("ended", "failed", "retried", "decides"))

    flags = ("final", "finite", "requeued", "scheduled", "failed", "stopped_by_policy", "bare")
    attempts = (tuple(dict.fromkeys(attempt() for _ in range(draw.randint(0, 3)))) for _ in range(50))
    return [RunCase(attempts=those, **words(*flags)) for those in attempts]


# -- rows of rule files, as texts


def _value(word: str) -> st.SearchStrategy[str]:
    if word == "exit_status":
        return st.sampled_from(("0", "137", '"none"', "{ not = 0 }", "{ from = 1, to = 137 }", '[1, "none"]'))
    if word == "state":
        return st.sampled_from(('"running"', '"finishing"', '{ not = "queued" }', '"none"'))
    if word == "cause":
        return st.sampled_from(('"interrupted"', '"none"', '["exit_zero", "provider_error"]', '{ not = "none" }'))
    return st.sampled_from(("true", "false"))


def _table(words: tuple[str, ...], most: int) -> st.SearchStrategy[dict[str, str]]:
    chosen = st.lists(st.sampled_from(words), max_size=most, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: _value(name) for name in names}))


_BOX = _table(("fails", "ended", "state", "failed", "cause", "retried", "exit_status", "decides"), 2).map(
    lambda box: f"{{ {', '.join(f'{word} = {value}' for word, value in box.items())} }}"
)
_THEN = st.sampled_from(
    ('state = "failed", reason = "timed_out"', 'state = "running"', 'state = "stopped", reason = "interrupted"')
)


@st.composite
def row_texts(draw: st.DrawFn) -> str:
    """A row of a rule file that may be read, or may contradict itself."""
    words = ("over", "final", "finite", "requeued", "state", "failed", "cause", "bare", "attempts", "decided")
    when = draw(_table(words, 2))
    for name in draw(st.lists(st.sampled_from(("first", "deciding", "any", "all", "no")), max_size=2, unique=True)):
        when[name] = draw(_BOX)
    lines = "".join(f"when.{word} = {value}\n" for word, value in when.items())
    return f"\n[[row]]\n{lines}then = {{ {draw(_THEN)} }}\n"
