"""`steno rules`: rule sets in files, and those that the record adopted; `diff` is in a file of its own."""

import getpass
from pathlib import Path

import click
from msgspec.structs import asdict

from steno.cli.commands.replay import RuleSetName
from steno.cli.commands.rules_diff import diff
from steno.cli.render import paint
from steno.cli.render.words import count, moment
from steno.cli.wiring.app import App, CommandGroup
from steno.cli.wiring.errors import NOT_SUCCEEDED
from steno.cli.wiring.options import why_option
from steno.cli.wiring.output import hint, show
from steno.engine.errors import RefusedByPolicy
from steno.engine.providers.registry import every_rule_set, rules_named
from steno.engine.providers.rule_files import current_rows, file_of, finding_at, rule_files, texts_of
from steno.engine.rules.rule_file import RuleFinding, adopted_by, digest_of, read_rules, rules_of
from steno.engine.rules.sets import RuleSet
from steno.events.clock import format_time
from steno.events.errors import RecordNotFound, UnreadableInput


@click.group("rules", cls=CommandGroup)
def rules_command() -> None:
    """A rule set says what a provider's answers mean: the state and the reason of each run. `current` is Steno's own. A
    site can say its own in a file: rules/NAME.toml beside steno.toml.

    \b
    Examples:
      steno rules show current
      steno rules check rules/site.toml
      steno rules diff current site
      steno rules adopt site --why "exit 137 is the memory killer here"
    """


rules_command.add_command(diff)


@rules_command.command("check", short_help="Find what is wrong in rule files, with lines.")
@click.argument("files", metavar="[FILE]…", nargs=-1, type=click.Path(path_type=Path))
def check(app: App, files: tuple[Path, ...]) -> None:
    """Find words that rules do not know, gaps (cases that no row matches), overlaps (rows that disagree where only
    their order decides), rows hidden by earlier rows, and rows that can never match. Every possible case is covered,
    not only those seen. Without FILE: every file of the rules folders.

    Two rows that overlap and disagree are an error if they test the same words; otherwise a note. A row that may end a
    run that goes on is a note. Exits 1 if there is an error, 2 if a file cannot be read at all.

    With --json: {"findings": [{"file", "line", "kind", "text", "error"}], "files"}.

    \b
    Examples:
      steno rules check
      steno rules check rules/site.toml
      steno rules check --json | jq -r '.findings[] | "\\(.file):\\(.line): \\(.text)"'
    """
    paths = files or tuple(rule_files(app.rules_folders).values())
    if not paths:
        raise click.UsageError(f"there is no rule file in {app.rules_folders[0]}: name one, or write one there")
    findings = [(str(path), finding) for path in paths for finding in _checked(path)]
    errors = sum(finding.error for _, finding in findings)
    app.exit_code = NOT_SUCCEEDED if errors else app.exit_code
    lines = [
        f"{path}:{finding.line}: {'' if finding.error else 'note: '}{finding.kind}: {finding.text}"
        for path, finding in findings
    ]
    counts = f"{count(errors, 'error')}, {count(len(findings) - errors, 'note')}"
    lines.append(f"{count(len(paths), 'file')}: {counts if findings else 'nothing to complain of'}")
    rows = [{"file": path} | asdict(finding) for path, finding in findings]
    show(app, {"findings": rows, "files": [str(path) for path in paths]}, "\n".join(lines))


def _checked(path: Path) -> tuple[RuleFinding, ...]:
    from steno.engine.rules.check import check_rules

    text, file, findings = file_of(path)
    if file is None or findings:
        return findings
    try:
        _, *texts = texts_of(path)
    except UnreadableInput as error:  # of a set that it extends
        return (finding_at("extends", text, f"extends {file.extends!r}: {error}"),)
    return check_rules(file, [base for each in texts if (base := read_rules(each)[0]) is not None])


@rules_command.command("show", short_help="Show the rows of a rule set.")
@click.argument("rules", metavar="[NAME|FILE]", type=RuleSetName(), default="adopted")
def show_(app: App, rules: str) -> None:
    """Show the rows of a rule set in order: the first that matches decides. Without NAME, the rules in force. `current`
    is shown as rows that a test holds equal to what runs.

    With --json: {"name", "date", "rationale", "incidents", "extends", "rows": [{"name", "line", "when", "then"}],
    "hash"}.

    \b
    Examples:
      steno rules show
      steno rules show current
      steno rules show rules/site.toml --json | jq '.rows[].then'
    """
    from steno.engine.live.adopted_rules import in_force
    from steno.engine.rules.sets import ADOPTED, CURRENT

    chosen = rules_named(rules, app.rules_folders, files=True)
    if chosen is ADOPTED:
        with app.reading() as record:
            chosen = in_force(record)
    if not chosen.texts and chosen is not CURRENT:
        raise click.UsageError(f"{chosen.name} is a program, not a table: {chosen.summary}")
    text = chosen.texts[0] if chosen.texts else current_rows()
    file, _ = read_rules(text)
    assert file is not None  # noqa: S101 - it was read before
    rows = [{"name": row.name, "line": row.line, "when": str(row.when), "then": row.then} for row in file.rows]
    value = asdict(file) | {"name": chosen.name, "rows": rows, "hash": _hash(chosen)}
    incidents = f" · answers {', '.join(file.incidents)}" if file.incidents else ""
    lines = [f"{paint.bold(chosen.name)}  {paint.dim(file.date + incidents)}", " ".join(file.rationale.split()), ""]
    for row in file.rows:
        lines += [f"{paint.bold(row.then)}  {paint.dim(row.name)}", f"  {row.when}"]
    lines += [f"then the rows of {file.extends}"] if file.extends else []
    show(app, value, "\n".join(lines))


def _hash(rules: RuleSet) -> str | None:

    return digest_of(rules.texts) if rules.texts else None


@rules_command.command("list", short_help="List rule sets, and what the record adopted.")
def list_(app: App) -> None:
    """List every rule set with the file that it is in, then what the record adopted, when, by whom and why.

    With --json: {"rules": [{"name", "file", "summary"}], "adopted": [{"position", "at", "name", "hash", "why", "by",
    "understood"}], "in_force"}.

    \b
    Examples:
      steno rules list
      steno rules list --json | jq .in_force
    """
    from steno.engine.live.adopted_rules import adoptions, in_force

    rows = [(rules.name, "", rules.summary) for rules in every_rule_set().values()]
    for name, path in rule_files(app.rules_folders).items():
        try:
            rows.append((name, str(path), rules_of(texts_of(path)).summary))
        except (UnreadableInput, FileNotFoundError) as error:
            rows.append((name, str(path), f"not readable: {error}"))
    try:
        with app.reading() as record:
            adopted = [(stored, event, adopted_by(event) is not None) for stored, event in adoptions(record)]
            now = in_force(record).name
    except RecordNotFound:
        adopted, now = [], "current"
    value = {
        "rules": [dict(zip(("name", "file", "summary"), row, strict=True)) for row in rows],
        "adopted": [
            {"position": stored.position, "at": format_time(stored.recorded_at), "understood": understood}
            | {key: getattr(event, key) for key in ("name", "hash", "why", "by")}
            for stored, event, understood in adopted
        ],
        "in_force": now,
    }
    doubt = {True: "", False: " (not understood by this version: not in force)"}
    cells = [
        (str(stored.position), moment(stored.recorded_at), event.name, event.by, event.why + doubt[understood])
        for stored, event, understood in adopted
    ]
    history = (paint.table(("FROM", "AT", "ADOPTED", "BY", "WHY"), cells), f"in force: {now}")
    none_adopted = ("current is in force until the record adopts others",)
    lines = (paint.table(("RULES", "FILE", "WHAT"), rows), "", *(history if adopted else none_adopted))
    show(app, value, "\n".join(lines))


@rules_command.command("adopt", short_help="Judge by these rules from now on.")
@click.argument("rules", metavar="NAME|FILE", type=RuleSetName())
@why_option()
def adopt(app: App, rules: str, why: str) -> None:
    """Judge every answer from now on by a rule file, or by `current` again. The record keeps the file's whole text:
    later changes of the file change nothing until they are adopted. Runs stay as they were judged until a poll shows
    something new of them; `steno replay --diff NAME` shows beforehand which verdicts differ. A process that records
    follows at once.

    With --json: {"name", "hash", "position"}; "position" is null if these rules were in force already. Exits 6 if
    `steno rules check` finds an error.

    \b
    Examples:
      steno rules adopt site --why "exit 137 is the memory killer here"
      steno rules adopt current --why "the cluster reports it itself now"
    """
    from steno.engine.live.adopted_rules import adopt as adopt_rules

    chosen = rules_named(rules, app.rules_folders, files=True)
    errors = [finding for finding in _checked(Path(rules)) if finding.error] if chosen.texts else []
    if errors:
        first = f"{rules}:{errors[0].line}: {errors[0].text}"
        raise RefusedByPolicy(f"{chosen.name} is not adopted: {first} ({count(len(errors), 'error')})")
    with app.writing() as record:
        position = adopt_rules(record, chosen, why=why, by=getpass.getuser())
    if position is None:
        hint(f"{chosen.name} is in force already")
    text = f"{chosen.name} is in force{'' if position is None else f' from position {position} on'}"
    show(app, {"name": chosen.name, "hash": _hash(chosen), "position": position}, text)
