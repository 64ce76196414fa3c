"""The front page, `steno --help`: every command by section, examples, exit codes; made without importing click."""

from cli.catalogue import ENTRIES, SECTIONS

_ABOUT = """\
A flight recorder and control engine for GPU runs. Steno takes down what dstack
says, word for word, derives every state, reason and cost from that record, and
ends machines that idle. If a verdict looks wrong, ask `steno explain`; if a
rule was wrong, replay under another."""

_EXAMPLES = """\
  steno demo                              a tour: no account, no network
  steno submit --wait -- make test        run a command here, recorded
  steno submit --provider dstack --wait   run ./.dstack.yml on your dstack
  steno explain my-run                    why it failed, and by which poll
  steno up --provider dstack              keep machines warm, end idle ones
  steno costs --by run                    what each run cost, idle time apart"""

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
