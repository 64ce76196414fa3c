"""Every command by name, with its file and its one-line help, so that `steno --help` imports none of them."""

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
            Entry("doctor", "doctor", "Check that a task could run, and say what to do if not."),
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
            Entry("explain", "explain", "Explain a verdict, a cold start, or why a machine is still up."),
        ),
    ),
    (
        "Machines and money",
        (
            Entry("vms", "vms", "List machines, show one, stop one."),
            Entry("costs", "costs", "Show costs by machine, run, day, user or GPU."),
            Entry("budget", "budget", "Show what is spent, committed and left of the budget."),
            Entry("metrics", "metrics", "Print the figures a front end shows."),
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
            Entry("export", "export", "Write any part of the record as a trace that replays anywhere."),
            Entry("import", "import_", "Append a trace's polls to the record, as an archive."),
            Entry("sources", "sources", "List the record's sources, live and imported; hide an archive."),
        ),
    ),
    (
        "The record itself",
        (
            Entry("events", "events", "List the record's events."),
            Entry("polls", "polls", "List the record's polls."),
            Entry("poll", "poll", "Print a provider's answer exactly as it came."),
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
