"""The record as it grows: one thread folds it, what it says goes to every listener."""
