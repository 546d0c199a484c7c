"""Where the `specctl` command enters, and what Ctrl-C does before and after a command.

Apart from `main`: what that imports takes a tenth of a second, in which Python answers Ctrl-C with
a traceback. So nothing is imported here that has to be read from a file: `_signal` is what `signal`
makes enumerations of, for which it takes longer than all of this.
"""

import _signal as signal  # type: ignore[import-not-found]
import atexit
import os

_INTERRUPTED = 130


class _Leaving:
    """A handler of SIGINT that ends the process there and then; nothing of it is left to end."""

    entered = False
    """Whether this process is the command: a test's must go on."""
    said = False
    """Whether the reader was told already."""

    def __call__(self, *_: object) -> None:
        """130, and a line."""
        try:
            if not self.said:
                os.write(2, b"specctl: interrupted\n")
        finally:
            os._exit(_INTERRUPTED)


_leaving = _Leaving()


def main() -> None:
    """Run the command line; Ctrl-C is 130 and a line from the first moment to the last."""
    _leaving.entered = True
    leave_at_once()
    # Registered first, so run last: after it Python gives signals back, and one would be the end.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        from speccli.main import main as run

        run()
    except KeyboardInterrupt:  # between a command and the end
        _leaving()
    finally:
        leave_at_once()


def leave_at_once(*, said: bool = False) -> None:
    """From now on Ctrl-C ends the process there and then, with a line unless one was `said`."""
    _leaving.said = said or _leaving.said
    if _leaving.entered and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leaving)


def raise_it() -> None:
    """From now on Ctrl-C is a KeyboardInterrupt: a command ends in good order."""
    if signal.getsignal(signal.SIGINT) is _leaving:
        signal.signal(signal.SIGINT, signal.default_int_handler)
