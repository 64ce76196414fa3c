"""`steno audit`: every recorded decision, derived again."""

import click

from steno.cli.render import paint, words
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.errors import NOT_SUCCEEDED
from steno.cli.wiring.output import progress, show


@steno_command("audit")
@click.option("--missing", is_flag=True, help="Also list decisions that were due and were not made.")
def audit_command(app: App, missing: bool) -> None:
    """A decision (a place, a wait, a refusal, a drain, a stop, an alert) names the position and the time from which it
    was made. The record is folded once; at each of these positions the decision is derived again, with the policy and
    the rules that were in force there. Decisions of versions that named no position are derived at every position since
    the poll before; those that follow at one of them are counted apart. Nothing is written, no provider is called.

    With --missing, decisions are derived after every poll too: a decision that stays due for two further rounds while
    its source is recorded, and is not made, is listed. That reads every answer in full and takes several times as long.

    `steno up` does the same in the background, without --missing, with 2 % of a processor: findings go to its log, and
    `steno doctor` counts them.

    Exits 1 if anything is listed. With --json: {"position", "exact", "older", "differing", "findings": [{"kind":
    "differs"|"twice"|"missing", "position", "at", "decided_at", "subject", "decision", "recorded", "derived",
    "software"}]}.

    \b
    Examples:
      steno audit
      steno audit --missing
      steno audit --record backup.db --json | jq -r '.findings[].subject'
    """
    from steno.projections.answers.decision_audit import audited, sentence

    with app.reading() as record, progress("deriving decisions") as advance:
        audit = audited(record, missing=missing, progress=advance)
    older = f", {audit.older:,} of older versions at a world near them" if audit.older else ""
    what = f"{words.count(audit.exact + audit.older, 'decision')}{older}, up to event {audit.position:,}"
    if not audit.findings:
        show(app, audit, f"{click.style('✓', fg='green')} every decision follows from the record: {what}")
        return
    app.exit_code = NOT_SUCCEEDED
    rows = [(f"{finding.position:,}", words.moment(finding.at), sentence(finding)) for finding in audit.findings]
    table = paint.table(("EVENT", "AT", "WHAT"), rows, right=(0,))
    noun = words.count(audit.differing, "decision does", "decisions do")
    more = paint.dim(f"The world that the first was made from: steno replay --until {audit.findings[0].decided_at}")
    show(app, audit, f"{click.style('✗', fg='red')} {noun} not follow from the record, of {what}\n{table}\n{more}")
