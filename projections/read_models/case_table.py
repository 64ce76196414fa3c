"""The logs of runs' cases, apart from the runs' own rows: a scan of them reads some bytes a run."""

from collections.abc import Iterable, Iterator

from sqlalchemy import text

from steno.projections.read_models.database import Database

_PUT = text("INSERT OR REPLACE INTO run_cases (ordinal, cases) SELECT ordinal, :cases FROM runs WHERE run_id = :id")
_DROP = text("DELETE FROM run_cases WHERE ordinal IN (SELECT ordinal FROM runs WHERE run_id = :id)")
_ALL = {
    schema: text(
        f"SELECT ordinal, cases FROM {schema}.run_cases WHERE :id IS NULL "  # noqa: S608 - names of ours
        f"OR ordinal = (SELECT ordinal FROM {schema}.runs WHERE run_id = :id) ORDER BY ordinal"
    )
    for schema in ("main", "base")
}
_RUN = {schema: text(f"SELECT run_id FROM {schema}.runs WHERE ordinal = :place") for schema in ("main", "base")}  # noqa: S608 - names of ours


class CaseTable:
    """The logs (`case_log`) of the runs of an open store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = "main"

    def stand_on(self, schema: str) -> None:
        """Read the logs of the attached store: they are longer, and no entry of them changes."""
        self._schema = schema

    def put(self, logs: Iterable[tuple[str, bytes]]) -> None:
        """Insert or replace the logs of runs that have rows."""
        self._database.execute_many(_PUT, ({"id": run_id, "cases": log} for run_id, log in logs))

    def drop(self, run_ids: Iterable[str]) -> None:
        """Delete the logs of runs whose rows are about to be deleted."""
        self._database.execute_many(_DROP, ({"id": run_id} for run_id in run_ids))

    def all(self, run_id: str | None = None) -> Iterator[tuple[int, bytes]]:
        """(place of the run, its log), in order of first sight; only of `run_id`, if given."""
        return self._database.execute(_ALL[self._schema], id=run_id)

    def run_id(self, place: int) -> str:
        """The run at a place."""
        run_id: str = self._database.first(_RUN[self._schema], place=place)[0]
        return run_id
