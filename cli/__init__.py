"""The command line: parse, wire, print, exit code. No rule and no decision lives here."""

if __name__ != "steno.cli":
    raise ImportError("Steno's packages are inside `steno`: import steno.cli, not cli")
