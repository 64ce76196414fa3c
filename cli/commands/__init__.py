"""One file a command; each is imported only when that command is called."""
