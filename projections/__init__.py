"""Read models: disposable, rebuilt from the record."""

if __name__ != "steno.projections":
    raise ImportError("Steno's packages are inside `steno`: import steno.projections, not projections")
