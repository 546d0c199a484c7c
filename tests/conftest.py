"""What holds for every test."""

from __future__ import annotations

import contextlib
import signal

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
