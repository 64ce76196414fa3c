"""Read models: disposable, rebuilt from the record."""
