"""The commands; a file is imported only when a command of it is called."""
