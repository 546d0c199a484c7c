"""Telling others: Alertmanager by its API, anything else through apprise.

What was told to whom is remembered, so that a finding is told once and its end is told too. What
cannot be told is tried again at the next check, and said here; it changes no verdict.
"""

from speccli.core.alert.notify.notifier import Notifier, channels_of

__all__ = ["Notifier", "channels_of"]
