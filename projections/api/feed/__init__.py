"""The feed of the record: one thread folds it and publishes the changes to every listener."""
