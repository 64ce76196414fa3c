"""Every command with its file and one-line help, and the page `steno --help`: imports no command and no click."""

SECTIONS = {  # command → one-line help, by section of the page; the command's own help continues it
    "Start here": {
        "demo": "Tour on this machine: two runs, their bill, an incident.",
        "init": "Write a steno.toml, question by question.",
        "doctor": "Check whether a task can run, and how to fix what is missing.",
    },
    "Run things": {
        "up": "Record a provider, control its machines, serve the dashboard.",
        "submit": "Submit a task; with --wait, follow it to its end.",
        "rerun": "Submit a run again, as it was or with other flags.",
        "kernel": "Submit kernels, judge them again, compare their times.",
        "slurm": "What only a Slurm cluster has: GPU types, plans, races, files.",
        "stop": "Stop runs: by name, or all that match.",
        "pause": "Let no run start, or none of a user, GPU or source.",
        "resume": "Release what pause, drain or stop holds back.",
        "logs": "Print a run's output.",
        "attach": "Print the way to a port of a run, or a shell in it.",
    },
    "See what happened": {
        "ps": "List runs.",
        "changes": "Show what changed since a time, in runs, machines, money.",
        "watch": "Print changes of runs as they happen.",
        "show": "Show one run: the provider's words beside the verdict.",
        "compare": "Compare two runs: outcome, times, cost, what was asked for.",
        "timeline": "Draw where a run's time went.",
        "explain": "Explain a verdict, a cold start, or why a machine still runs.",
        "bisect": "Find the event at which two rule sets part about a run.",
        "causes": "Find the line of an output that explains why it failed.",
        "incidents": "List anomalies in what providers answered, and gaps.",
    },
    "Machines and money": {
        "vms": "List, show, stop or keep machines; also `steno machines`.",
        "drain": "Let no run start, and end each machine once it is idle.",
        "costs": "Show costs by machine, run, day, user or GPU.",
        "report": "Report a month as Markdown, HTML, CSV or FOCUS.",
        "waste": "Show what was paid for and not used, and what to ask for.",
        "estimate": "Estimate what runs a day cost, with and without reuse of machines.",
        "whatif": "Predict what another policy would have cost.",
        "budget": "Show what of the budget is spent and left, by owner; move it.",
        "metrics": "Print the figures for a front end.",
        "notify": "List the notices sent to the webhook, or send a test notice.",
    },
    "HTTP": {
        "open": "Open the dashboard, or the page of a run, in the browser.",
        "serve": "Serve dashboard, API, live stream and metrics; record nothing.",
        "listener": "Judge strangers' kernels on this machine, in containers.",
        "token": "Create, list and revoke tokens for the HTTP service.",
    },
    "Record and replay": {
        "record": "Poll a provider and record every answer, until interrupted.",
        "cases": "List every case that the rules saw, and what they make of it.",
        "replay": "Replay a record, bundle or trace under any rule set.",
        "rules": "Check, compare and adopt rule sets, also of your own files.",
        "export": "Export runs as a bundle, polls as a trace, or tables.",
        "audit": "Derive every recorded decision again, and list what differs.",
        "import": "Import a trace into the record as an archive.",
        "sources": "List the record's sources, live and imported; hide an archive.",
        "workers": "List the processes that act on the record, and what each holds.",
    },
    "The record itself": {
        "sql": "Ask the record your own questions, in SQL.",
        "events": "List the record's events.",
        "polls": "List the record's polls.",
        "poll": "Print a provider's answer as it was received.",
        "verify": "Check every byte of a record or bundle by its hash chain.",
        "rebuild": "Rebuild the read models from the record.",
        "db": "Show, upgrade or copy the record's database, or share it.",
    },
    "About Steno": {
        "help": "Print the help of Steno or of a command.",
        "man": "Print a man page, or install them all.",
        "config": "Show every setting and where its value comes from.",
        "states": "Draw the state machines of runs and machines.",
        "bench": "Measure Steno beside its targets, in its repository.",
        "completion": "Print the completion script for your shell.",
    },
}

ALIASES = {"machines": "vms"}
OF_PROVIDERS = {"slurm"}  # commands that a built-in provider brings
HELP = {name: text for commands in SECTIONS.values() for name, text in commands.items()}

_MODULES = {  # modules of several commands; every other command has a module of its own name
    "costs": ("estimate", "metrics", "waste"),
    "daemons": ("listener", "record", "serve", "up"),
    "events": ("polls", "poll"),
    "levers": ("pause", "resume", "drain"),
    "manual": ("help", "man", "open", "states", "completion"),
    "maintenance": ("verify", "rebuild", "db"),
    "ps": ("watch",),
    "rules_diff": ("bisect",),
    "runs": ("show", "compare", "timeline", "explain", "logs", "stop"),
    "settings": ("config", "init"),
    "sources": ("incidents", "workers"),
    "submit": ("rerun",),
    "traces": ("export", "import"),
}


def module_of(command: str) -> str:
    """The module in `steno.cli.commands` that has `<command>_command`."""
    return next((module for module, commands in _MODULES.items() if command in commands), command)


def near(word: str, known: list[str]) -> str:
    """`; did you mean a, b?` for the known words closest to a mistyped one, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    close += [name for name in known if word and name.startswith(word) and name not in close][:3]
    return f"; did you mean {' or '.join(close[:3])}?" if close else ""


ABOUT = """\
A flight recorder and control engine for GPU runs. Steno records every answer of
the provider unchanged, derives states, reasons and costs from that record, and
stops idle machines. If a verdict looks wrong, run `steno explain`; if a rule
was wrong, replay the record under another."""

_EXAMPLES = """\
  steno demo                              a tour: no account, no network
  steno submit --wait -- make test        run a command here, recorded
  steno submit --provider dstack --wait   run ./.dstack.yml on your dstack
  steno slurm run --gpu 2 train.py        whichever GPUs start first
  steno explain my-run                    why it failed, and by which poll
  steno up --provider dstack              keep machines warm, stop idle machines
  steno costs --by run                    cost of each run; idle time apart"""

_OPTIONS = """\
  --record URL   the record: a path (SQLite) or a database URL; before or after
                 the command; else STENO_RECORD, steno.toml, your data folder
  --json         JSON with stable keys, from any command
  --version      print version, commit and schema
  -h, --help     this page; `steno COMMAND --help` has options and examples"""

_CODES = """\
  0 done                               5 conflict, or the record is locked
  1 run did not succeed, diff differs  6 refused by policy
  2 usage, unreadable input            7 damaged, cut, or not a record
  3 provider unreachable, 401, 403     8 cannot write, or a newer schema
  4 run, file or record not found      130 interrupted"""


def page(colour: bool) -> str:
    """The whole page, at most 80 columns wide; section titles in bold if `colour`."""
    width = max(map(len, HELP))
    sections = [
        (title, "\n".join(f"  {name:<{width}}  {text}" for name, text in commands.items()))
        for title, commands in SECTIONS.items()
    ]
    parts = [("Examples", _EXAMPLES), *sections, ("Options", _OPTIONS), ("Exit codes", _CODES)]
    bold = "\x1b[1m{}\x1b[0m".format if colour else str
    body = "\n\n".join(f"{bold(title)}\n{text}" for title, text in parts)
    return f"Usage: steno [--record URL] COMMAND [ARGS]…\n\n{ABOUT}\n\n{body}"
