"""The command line: parse, wire, print, exit code. No rule and no decision lives here."""
