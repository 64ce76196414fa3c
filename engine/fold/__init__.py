"""The world a fold has arrived at: runs, sources, anomalies; pure, and serialisable so that a fold can resume."""
