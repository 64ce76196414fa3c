"""The runs of this machine, as one poll answers them."""

import logging
from collections.abc import Collection

import msgspec

from engine.providers.local.files import StateDamaged
from engine.providers.local.page import SHORT, WHOLE, AnswerPage, page, question
from engine.providers.local.state import RunState, close_lost, read_state
from engine.providers.local.store import RunFolders
from engine.providers.local.words import run_item
from events.clock import Clock

_log = logging.getLogger(__name__)


class RunLister:
    """Reads the runs, those that have ended only once."""

    def __init__(self, store: RunFolders, host: str, clock: Clock) -> None:
        self.active: dict[str, RunState] = {}
        """The runs that went on at the last reading."""
        self.ended: list[RunState] = []
        """Those found ended since somebody last cleared this."""
        self._store = store
        self._host = host
        self._clock = clock
        self._past: dict[str, tuple[int, bytes]] = {}
        self._history_told = False

    def read(self, follow: Collection[str], since: int | None) -> AnswerPage:
        """The runs, newest first.

        The first answer, and any that lacks a followed run, is the history from `since` on; the others are every active
        and followed run and the newest hundred ended ones. A run whose supervisor was lost is brought to its end here.

        Raises:
            OSError: the state cannot be read.
        """
        self.active = {}
        damaged = False
        for run_id in self._store.run_ids():
            if run_id not in self._past:
                try:
                    self._look_at(run_id)
                except StateDamaged as error:
                    damaged = True  # one bad file must not hide the other runs
                    _log.warning("%s", error)
        past = sorted(self._past, key=lambda run_id: (self._past[run_id][0], run_id), reverse=True)
        short = self._history_told and all(run_id in self.active or run_id in self._past for run_id in follow)
        self._history_told = True
        shown = [
            run_id
            for rank, run_id in enumerate(past)
            if run_id in follow or (rank < SHORT if short else since is None or self._past[run_id][0] >= since)
        ]
        left_out = len(shown) < len(past)
        items = sorted((*map(self._item, self.active.values()), *map(self._past.__getitem__, shown)), reverse=True)
        return page(
            self._host,
            [item for _, item in items],
            limit=SHORT if short and left_out else WHOLE,
            complete=not left_out and not damaged,
        )

    def question(self) -> bytes:
        """What is asked, as JSON text."""
        return question(self._host, WHOLE)

    def _look_at(self, run_id: str) -> None:
        folder = self._store.folder(run_id)
        state = read_state(folder)
        if state is None or not state.known:
            return
        state = close_lost(folder, state, self._clock.now())
        if state.ended is None:
            self.active[run_id] = state
        else:
            self.ended.append(state)
            self._past[run_id] = self._item(state)

    def _item(self, state: RunState) -> tuple[int, bytes]:
        return state.accepted.at, msgspec.json.encode(run_item(state, self._host, self._clock.now()))
