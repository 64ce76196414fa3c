"""docs/reasons.md from the tables it shows. `python -m stenotest.reasons_page` writes it."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from steno.engine.causes.catalogue import shipped
from steno.engine.providers.dstack.endings import GENERAL, MESSAGES, REASONS
from steno.engine.providers.slurm.words import ENDINGS, NEVER, PENDING, SUBTRACTED
from steno.engine.rules import reasons
from steno.engine.state.facts import Finding

PAGE = Path(__file__).parents[3] / "docs" / "reasons.md"

HEAD = """# Why a run is where it is

<!-- generated from engine/rules/reasons.py and the providers' own words: `make reasons-docs` -->

`steno show`, `steno explain`, `steno submit --wait`, the run's page and `why` in the API begin with one sentence: the
cause, the provider's word and message, and what helps. It comes from these tables: a provider's own words first, then
the reason, then the state. *Whose* says where the cause lies: with a **user** (a person or a policy that a person set),
the **task**, the **site** (fleets, accounts, limits, nodes), the **provider**, or **Steno**. *Again* says whether the
same task may succeed if it is run again unchanged; the sentence then ends with the command for it.

In braces stands what Steno fills in: its provider, a larger flag; NAME is the run. A word that no table has is quoted
beside the general sentence.
"""

CAUSES = """`steno explain NAME` quotes the line of the recorded output that explains a failure, with its cause, or
says that no line does. `steno causes FILE` does so for a file with output.
Of several causes the first in this table counts: the others follow from it. But a task often survives a missing file
or module, or a refused permission, token, address or port: outside of a traceback these yield to another error after
more output. `steno causes --exit-status N` knows that the task failed; without it, a task that says that all went
well has no cause. A site adds rules of its own in TOML, by `steno causes --rules FILE` or the setting `causes.rules`:

```toml
[[rule]]
name = "scratch-purged"
cause = "missing_file"
source = "our nightly purge of /scratch"
patterns = ['/scratch/\\S+: No such file']  # RE2: no look-around, so that every line is read in linear time
unless = '(?i)warning'  # such a line shows nothing
remedy = "copy the data to /scratch again: it is purged after 30 days"
```

A pattern that RE2 does not take, or that matches every line, is refused with its line in the file.

`needs` and `follows` are patterns for a line at most `within` lines before: with the one the rule holds only after such
a line, with the other not after it. `warn = true`: lines that call themselves warnings count. `weak = true`: only if
the task is known to have failed. `generic = true`: it yields to any other rule on its line. A rule
that is both reads a program's own words: outside of an exception any other explanation goes before it. `error = true`:
of a task known to have failed, lines that match nothing else, and call themselves errors or say that it ends.
"""


def page() -> str:
    """The whole document."""
    states = {f"`{state}`": row for state, row in reasons.STATES.items()}
    held = {
        "held in Steno's queue": reasons.HELD,
        "held in Steno's queue, without an offer": reasons.NO_OFFER,
        "with a place, not handed over yet": reasons.PLACED,
        "not ended, the provider silent": reasons.SILENT,
        "a schedule that goes on": reasons.SCHEDULED,
        "a firing whose end no answer showed": reasons.NOT_SEEN,
        "running, its machine unreachable": reasons.CUT_OFF,
        "running, paused by its provider": reasons.PAUSED,
        "running, warned of idle GPUs": reasons.WARNED,
        "running, its machine idle": reasons.IDLE,
        "running, its machine gone": reasons.GONE,
        "succeeded, its master done": reasons.MASTER_DONE,
        "succeeded with exit status 0": reasons.EXITED_ZERO,
        "succeeded with another exit status": reasons.EXITED_ALL_THE_SAME,
        "failed with exit status 0": reasons.FAILED_ALL_THE_SAME,
        "succeeded or stopped by a site's own rules": reasons.COUNTED,
        "given up by Steno, never handed over": reasons.GIVEN_UP,
        **{f"`{reason}`, never handed over": row for reason, row in reasons.NOT_HANDED_OVER.items()},
        "`timed_out`, the limit not known": reasons.TIME_LIMIT,
    }
    known = {f"`{word}`": row for word, row in REASONS.items() if row is not None}
    silent = {*GENERAL, *(word for word, row in REASONS.items() if row is None)}
    rest = ", ".join(f"`{word}`" for word in sorted(silent))
    parts = [
        HEAD,
        "## By state, and who holds the run\n",
        *_table("state", {**held, **states}),
        "## By reason of a run that failed or was stopped\n",
        *_table("reason", {f"`{reason}`": row for reason, row in reasons.REASONS.items()}),
        "## By exit status\n",
        *_table("exit status", {str(code): row for code, row in reasons.EXITS.items()}),
        "## dstack: by its term for the job, or for the run\n",
        *_table("word", known),
        f"These say no more than the tables above: {rest}.\n",
        "## dstack: by its message\n",
        "Words in the message, in any case. They count where dstack's word has many causes: containers, capacity.\n",
        *_table("message", {", ".join(f"`{word}`" for word in words): row for words, row in MESSAGES.items()}),
        "## Slurm: by the state, or the state and exit code, of a job that ended\n",
        *_table("state", {f"`{word}`": row for word, row in {**ENDINGS, **SUBTRACTED}.items()}),
        "## Slurm: by its reason why a job waits\n",
        *_waits(),
        "## By a line of the output\n",
        CAUSES,
        *_causes(),
    ]
    return "\n".join(parts)


def _table(head: str, rows: dict[str, Finding]) -> Iterator[str]:
    yield f"| {head} | cause | whose | what helps | again |\n|---|---|---|---|---|"
    for name, row in rows.items():
        remedy = re.sub(r"\{rerun ([^}]*)\}", r": `steno rerun NAME \1`", row.remedy).replace("{name}", "NAME")
        cells: Iterable[str] = (name, row.why, row.blame or "–", remedy or "–", "yes" if row.again else "no")
        yield f"| {' | '.join(cells)} |"
    yield ""


def _waits() -> Iterator[str]:
    yield "| reason | it waits because | what helps | can it start |\n|---|---|---|---|"
    for word, (why, remedy) in PENDING.items():
        yield f"| `{word}` | {why} | {remedy or '–'} | {'never as it is' if word in NEVER else 'yes'} |"
    yield ""


def _causes() -> Iterator[str]:
    yield "| cause | whose | what helps | lines of |\n|---|---|---|---|"
    for name, cause in shipped().causes.items():
        sources = "; ".join(dict.fromkeys(rule.source for rule in shipped().rules if rule.cause == name))
        yield f"| `{name}` | {cause.blame or '–'} | {cause.remedy} | {sources} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
