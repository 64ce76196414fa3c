"""A signal ends what it should, even if something swallowed its exception."""

import contextlib
import signal

import pytest

from cli.wiring.signals import stoppable


class Stop(Exception):
    """Raised by the signal."""


def send() -> None:
    """The signal, to this very thread: its handler runs before this returns."""
    signal.raise_signal(signal.SIGUSR1)


def test_the_signal_raises_where_it_comes() -> None:
    """At once."""
    with stoppable(signal.SIGUSR1, Stop), pytest.raises(Stop):
        send()


def test_a_signal_whose_exception_was_swallowed_is_raised_at_the_next_check() -> None:
    """Python forgets what is raised inside a destructor."""
    with stoppable(signal.SIGUSR1, Stop) as check:
        check()
        with contextlib.suppress(Stop):
            send()
        with pytest.raises(Stop):
            check()


def test_signals_in_a_row_raise_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second exception would cut off the clean-up after the first; a later signal raises again."""
    with stoppable(signal.SIGUSR1, Stop):
        with pytest.raises(Stop):
            send()
        send()
        monkeypatch.setattr("cli.wiring.signals._ROW", 0.0)
        with pytest.raises(Stop):
            send()


def test_what_python_forgets_is_not_printed_and_is_raised_at_the_next_check() -> None:
    """A signal in a destructor: nothing on stderr (pytest would fail of it), and it is not lost."""

    class Last:
        def __del__(self) -> None:
            send()

    with stoppable(signal.SIGUSR1, Stop) as check:
        last = Last()
        del last
        with pytest.raises(Stop):
            check()


def test_afterwards_the_signal_means_what_it_meant_before() -> None:
    """Nothing is left behind."""
    before = signal.getsignal(signal.SIGUSR1)
    with stoppable(signal.SIGUSR1, Stop):
        assert signal.getsignal(signal.SIGUSR1) != before
    assert signal.getsignal(signal.SIGUSR1) == before
