"""Every command with its file and one-line help, and the page `steno --help`: imports no command and no click."""

from typing import NamedTuple


class Entry(NamedTuple):
    """One command; `cli.commands.<module>` has it under the name `command`."""

    name: str
    module: str
    help: str


SECTIONS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Start here",
        (
            Entry("demo", "demo", "Tour on this machine: two runs, their bill, an incident."),
            Entry("doctor", "doctor", "Check whether a task can run, and how to fix what is missing."),
        ),
    ),
    (
        "Run things",
        (
            Entry("up", "up", "Record a provider, control its machines, serve the dashboard."),
            Entry("submit", "submit", "Submit a task; with --wait, follow it to its end."),
            Entry("stop", "stop", "Stop a run."),
            Entry("logs", "logs", "Print a run's output."),
        ),
    ),
    (
        "See what happened",
        (
            Entry("ps", "ps", "List runs."),
            Entry("show", "show", "Show one run: the provider's words beside the verdict."),
            Entry("timeline", "timeline", "Draw where a run's time went."),
            Entry("explain", "explain", "Explain a verdict, a cold start, or why a machine still runs."),
        ),
    ),
    (
        "Machines and money",
        (
            Entry("vms", "vms", "List machines, show one, stop one."),
            Entry("costs", "costs", "Show costs by machine, run, day, user or GPU."),
            Entry("budget", "budget", "Show how much of the budget is spent, committed and left."),
            Entry("metrics", "metrics", "Print the figures for a front end."),
            Entry("notify", "notify", "List the notices sent to the webhook, or send a test notice."),
        ),
    ),
    (
        "HTTP",
        (
            Entry("serve", "serve", "Serve dashboard, API, live stream and metrics; record nothing."),
            Entry("token", "token", "Create, list and revoke tokens for the HTTP service."),
        ),
    ),
    (
        "Record and replay",
        (
            Entry("record", "record", "Poll a provider and record every answer, until interrupted."),
            Entry("replay", "replay", "Replay a record or a trace under any rule set."),
            Entry("export", "export", "Export polls of the record as a trace file."),
            Entry("import", "import_", "Import a trace into the record as an archive."),
            Entry("sources", "sources", "List the record's sources, live and imported; hide an archive."),
        ),
    ),
    (
        "The record itself",
        (
            Entry("events", "events", "List the record's events."),
            Entry("polls", "polls", "List the record's polls."),
            Entry("poll", "poll", "Print a provider's answer as it was received."),
            Entry("verify", "verify", "Check every byte of the record against its hash chain."),
            Entry("rebuild", "rebuild", "Rebuild the read models from the record."),
            Entry("db", "db", "Upgrade the record to this version's schema."),
        ),
    ),
    (
        "About Steno",
        (
            Entry("config", "config", "Show every setting and where its value comes from."),
            Entry("machine", "machine", "Draw the state machines of runs and machines."),
            Entry("completion", "completion", "Print the completion script for your shell."),
        ),
    ),
)

ENTRIES: dict[str, Entry] = {entry.name: entry for _, entries in SECTIONS for entry in entries}


def near(word: str, known: list[str]) -> str:
    """`; did you mean a, b?` for the known words closest to a mistyped one, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    close += [name for name in known if word and name.startswith(word) and name not in close][:3]
    return f"; did you mean {' or '.join(close[:3])}?" if close else ""


_ABOUT = """\
A flight recorder and control engine for GPU runs. Steno records every answer of
the provider unchanged, derives states, reasons and costs from that record, and
stops idle machines. If a verdict looks wrong, run `steno explain`; if a rule
was wrong, replay the record under another."""

_EXAMPLES = """\
  steno demo                              a tour: no account, no network
  steno submit --wait -- make test        run a command here, recorded
  steno submit --provider dstack --wait   run ./.dstack.yml on your dstack
  steno explain my-run                    why it failed, and by which poll
  steno up --provider dstack              keep machines warm, stop idle ones
  steno costs --by run                    cost of each run; idle time apart"""

_OPTIONS = """\
  --record URL   the record: a path (SQLite) or a database URL; before or after
                 the command; else STENO_RECORD, steno.toml, your data folder
  --json         JSON with stable keys, from any command
  --version      print the version
  -h, --help     this page; `steno COMMAND --help` has options and examples"""

_CODES = """\
  0 done                               5 conflict, or the record is locked
  1 run did not succeed, diff differs  6 refused by policy
  2 usage, unreadable input            7 damaged, cut, or not a record
  3 provider unreachable, 401, 403     8 cannot write, or a newer schema
  4 run, file or record not found      130 interrupted"""


def page(colour: bool) -> str:
    """The whole page, at most 80 columns wide; section titles in bold if `colour`."""
    width = max(len(name) for name in ENTRIES)
    sections = [
        (title, "\n".join(f"  {entry.name:<{width}}  {entry.help}" for entry in rows)) for title, rows in SECTIONS
    ]
    parts = [("Examples", _EXAMPLES), *sections, ("Options", _OPTIONS), ("Exit codes", _CODES)]
    body = "\n\n".join(f"{_bold(title) if colour else title}\n{text}" for title, text in parts)
    return f"Usage: steno [--record URL] COMMAND [ARGS]…\n\n{_ABOUT}\n\n{body}"


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"
