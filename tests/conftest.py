"""What holds for every test."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Time proves nothing about a property on a busy machine; and a run finds what the run before found.
# `make unit ARGS=--hypothesis-profile=anew` looks at examples that nobody has seen yet.
settings.register_profile(
    "anew", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
settings.register_profile("same", settings.get_profile("anew"), derandomize=True, database=None)
settings.load_profile("same")

# A runner started in the background (`nohup make test &`, some CI) ignores these, and so would the
# programs that tests start and end by them: specctl leaves an ignored signal ignored, as it should.
for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGTERM, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        with contextlib.suppress(ValueError):  # not the main thread: leave it
            signal.signal(number, usual)


@pytest.fixture(autouse=True)
def _ctrl_c_is_heard_again() -> Iterator[None]:
    """A command that was told to stop ignores Ctrl-C up to its end; the runner does not end."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN is not before:
        signal.signal(signal.SIGINT, before)
