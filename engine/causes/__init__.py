"""Why a task failed, by its output: a catalogue of causes, and a pure function that quotes the line that decides."""
