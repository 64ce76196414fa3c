"""The projections' own file: tables of runs, machines, notes and the folded world."""
