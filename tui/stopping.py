"""Ctrl-Z: to the shell and back."""

from __future__ import annotations

import os

from textual.app import App


def nobody_to_return_to() -> bool:
    """Whether no shell would bring a stopped screen back: a container's or an ssh's only command.

    The process group of a session's leader has no parent that could continue it.
    """
    return os.getpgrp() == os.getsid(0)


class StoppableApp(App[None]):
    """An app that can be stopped where something can start it again."""

    def say(self, text: str) -> None:
        """Answer a key."""
        raise NotImplementedError

    def action_suspend_process(self) -> None:
        """Give the terminal back until `fg`."""
        if nobody_to_return_to():
            self.say("no shell with job control is above this screen: nothing could bring it back")
        else:
            super().action_suspend_process()
