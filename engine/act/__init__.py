"""Effects: intent, call, outcome, each an event, so that a crash at any point ends in exactly one run and one stop."""
