"""The contract of providers: polls, one run a submission, finding, stopping, output, and named trouble."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

from steno.engine.errors import (
    NameInUse,
    ProjectNotFound,
    ProviderUnreachable,
    RunNotFound,
    TaskInvalid,
    VmInUse,
    VmNotFound,
)
from steno.engine.providers.base import Provider, StopTarget
from steno.engine.providers.registry import READINGS
from steno.engine.state.reading import Listing
from steno.events.errors import StenoError
from steno.testing.site import ProviderSite

FOR_EVER = "sleep 600"
NOBODY = "00000000-0000-4000-8000-000000000000"


def _calls_of(provider: Provider) -> dict[str, Callable[[], object]]:
    return {
        "find": lambda: provider.find("some-run", 0),
        "stop": lambda: provider.stop(StopTarget(provider_id="some-run", name="some-run")),
        "logs": lambda: list(provider.logs("some-run", "some-run", follow=False)),
    }


class ProviderContract:
    """The tests that a provider passes. A subclass gives the fixture `site`."""

    def test_a_round_of_polls_is_answered_and_read_by_the_providers_own_reading(self, site: ProviderSite) -> None:
        """Each poll names its source; its path leads to the reading, and whoever reads it knows its project."""
        polls = list(site.provider.poll({}, since=None))

        assert polls
        for poll in polls:
            scope = READINGS.scope(poll.path, poll.req)
            assert (poll.source, poll.answered, poll.error) == (site.provider.source, True, None) or poll.status == 405
            assert scope.provider == site.provider.name
            assert poll.started_at <= poll.observed_at
        assert any(poll.complete for poll in polls)

    def test_a_run_ends_as_its_command_does_and_carries_its_mark(self, site: ProviderSite) -> None:
        """Verdicts of the fold, not words of the provider."""
        good, bad = site.submission("echo out"), site.submission("exit 7")
        ids = [site.send(good), site.send(bad)]

        assert site.ended(ids[0]) == ("succeeded", "exit_zero", 0)
        assert site.ended(ids[1]) == ("failed", "exit_nonzero", 7)
        runs, _ = site.look()
        assert [runs[ids[0]].name, runs[ids[1]].name] == [good.name, bad.name]
        assert [match.mark for match in site.provider.find(good.name, 0)] == [good.run_id]

    def test_a_submission_repeated_is_one_run(self, site: ProviderSite) -> None:
        """Refused for its name, or given back unchanged: never a second run."""
        wanted = site.submission(FOR_EVER)
        first = site.send(wanted)

        with suppress(NameInUse):
            assert site.provider.submit(wanted).provider_id == first

        assert [match.provider_id for match in site.provider.find(wanted.name, 0)] == [first]
        assert site.count() == 1

    def test_the_name_of_an_active_run_is_refused_or_free(self, site: ProviderSite) -> None:
        """Whatever the second task is; the run that has the name goes on."""
        first, other = site.submit(FOR_EVER, name="taken"), site.submission(FOR_EVER, name="taken")

        if site.unique_names:
            with pytest.raises(NameInUse, match="taken"):
                site.provider.submit(other)
            runs = [first]
        else:
            runs = [site.send(other), first]

        assert site.count() == len(runs)
        assert [match.provider_id for match in site.provider.find("taken", 0) if not match.ended] == runs

    def test_runs_are_found_by_name_and_time(self, site: ProviderSite) -> None:
        """Ended or not, newest first; a name nobody has gives none."""
        old = site.submit("true", name="again")
        site.ended(old)
        site.free("again")
        new = site.submit(FOR_EVER, name="again")

        matches = site.provider.find("again", 0)

        assert [(match.provider_id, match.ended) for match in matches] == [(new, False), (old, True)]
        assert site.provider.find("nobody", 0) == ()
        assert site.provider.find("again", 1 << 52) == ()

    @pytest.mark.parametrize("abort", [False, True], ids=["stop", "abort"])
    def test_a_stopped_run_ends_as_stopped(self, site: ProviderSite, abort: bool) -> None:
        """Asked twice it ends once; a run that has ended is left alone."""
        wanted = site.submission(FOR_EVER)
        provider_id = site.send(wanted)
        site.until(provider_id, "running")

        site.stop(provider_id, wanted.name, abort)
        state, reason, exit_status = site.ended(provider_id)
        site.provider.stop(site.stopping(provider_id, wanted.name, abort=True))

        assert (state, reason) == ("stopped", "aborted_by_user" if abort and site.tells_abort else "stopped_by_user")
        assert exit_status is None
        assert site.ended(provider_id)[:2] == (state, reason)

    def test_an_unknown_run_is_not_found(self, site: ProviderSite) -> None:
        """By whoever stops it or wants its output."""
        with pytest.raises(RunNotFound):
            site.provider.stop(StopTarget(provider_id=NOBODY, name="nobody"))
        with pytest.raises(RunNotFound):
            list(site.provider.logs(NOBODY, "nobody", follow=True))

    def test_output_is_whole_and_in_order_and_following_ends_with_the_run(self, site: ProviderSite) -> None:
        """Standard output and standard error as one stream."""
        wanted = site.submission("echo one", "echo two >&2", "sleep 0.5", "echo three")
        provider_id = site.send(wanted)

        followed = b"".join(site.provider.logs(provider_id, wanted.name, follow=True))

        assert followed == b"one\ntwo\nthree\n"
        assert b"".join(site.provider.logs(provider_id, wanted.name, follow=False)) == followed

    def test_a_machine_with_a_run_on_it_is_not_ended_and_its_life_is_billed(self, site: ProviderSite) -> None:
        """It is linked to its run, has a price, and is not stopped while it is busy."""
        provider_id = site.submit(FOR_EVER)
        site.until(provider_id, "running")
        machine = site.machine_of(provider_id)
        assert machine.facts.price

        with pytest.raises(VmInUse):
            site.provider.stop_vm(machine.provider_id)
        with pytest.raises(VmNotFound):
            site.provider.stop_vm(NOBODY)

        site.until(provider_id, "running")

    def test_a_task_that_cannot_run_is_refused(self, site: ProviderSite) -> None:
        """Before anything is started."""
        wanted = site.submission("true")
        nothing = msgspec.structs.replace(wanted, configuration={**wanted.configuration, "commands": [], "image": None})

        with pytest.raises(TaskInvalid) as refusal:
            site.provider.submit(nothing)

        assert "\n" not in str(refusal.value)
        assert site.count() == 0
        assert site.provider.find(wanted.name, 0) == ()

    def test_a_project_that_is_not_there_is_named(self, site: ProviderSite) -> None:
        """By a provider that has projects; one without has nothing to look for."""
        site.provider.expect_project()
        stranger = site.of_nobody()
        if stranger is not None:
            with pytest.raises(ProjectNotFound):
                stranger.expect_project()
            stranger.close()

    def test_trouble_is_failed_polls_and_one_line_for_whoever_calls(self, site: ProviderSite, tmp_path: Path) -> None:
        """A round never raises and is never complete; every call raises an error that names the trouble."""
        wanted = site.submission("true")
        for kind, meet in site.troubles.items():
            with ExitStack() as stack:
                provider, error = meet(stack, tmp_path)
                stack.callback(provider.close)

                polls = list(provider.poll({"some-run": 0}, since=None))
                for call, ask in _calls_of(provider).items():
                    with pytest.raises(StenoError) as trouble:
                        ask()
                    assert isinstance(trouble.value, error), (kind, call, trouble.value)
                    assert "\n" not in str(trouble.value), (kind, call)
                if kind != "damaged":  # one bad file does not keep others from running
                    with pytest.raises((error, ProviderUnreachable)):  # after an unreadable answer it may be there
                        provider.submit(msgspec.structs.replace(wanted, project=provider.project))
                with pytest.raises(StenoError):
                    provider.stop_vm("some-machine")

            assert polls, kind
            runs = [poll for poll in polls if READINGS.scope(poll.path, poll.req).listing is not Listing.VMS]
            assert not any(poll.complete for poll in runs), kind
            assert kind == "damaged" or not any(poll.answered or poll.complete for poll in polls), kind
