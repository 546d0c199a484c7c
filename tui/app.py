"""`specctl top`: one app, one poll worker, and screens that show the newest snapshot.

The event loop's thread owns all state. The poll worker alone awaits the network; a message carries
each frozen snapshot; handlers turn it into lines (`speccli.core.views`) and never wait.

The mouse stays with the terminal: selecting text with it, and pasting, work over SSH as everywhere,
and every action here has a key.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.worker import Worker, WorkerState

from speccli.core.errors import SpecctlError
from speccli.core.poll import Poller, pause_or_wake
from speccli.core.sources.replay import ReplaySource
from speccli.core.stats.snapshot import Event, Snapshot
from speccli.core.views import pages
from speccli.core.views.detail import build_detail
from speccli.core.views.format import span_words
from speccli.core.views.journal import Journal
from speccli.core.views.state import Finding, UiState, next_window
from tui import bindings
from tui.messages import SnapshotReady, SourceTrouble
from tui.outside import Later, hung_up, leave_once_hung_up, targets_of
from tui.palette import Palette, palette_for
from tui.screens.page import PageScreen
from tui.screens.top import TopScreen
from tui.stopping import StoppableApp

Judge = Callable[[Snapshot], Sequence[Finding]]
_NOTE_S = 6.0
_MAX_RETRY_S = 15.0


class TopApp(StoppableApp):
    """The live screen."""

    TITLE = "specctl top"
    CSS_PATH = Path(__file__).with_name("specctl.tcss")
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings.APP,
        Binding("ctrl+c,ctrl+q", "interrupt", show=False, priority=True),
    ]

    def __init__(
        self,
        poller: Poller | None = None,
        *,
        judge: Judge = lambda _: (),
        as_json: Callable[[Snapshot], str] | None = None,
        clock: Callable[[], float] = time.time,
        title: str = "",
        palette: Palette | None = None,
        tz: tzinfo | None = None,
        directory: Path | None = None,
        later: Later | None = None,
        sleep: Callable[[float, asyncio.Event], Awaitable[None]] = pause_or_wake,
    ) -> None:
        """`poller=None`: snapshots are posted by hand. `sleep`: the pause before a retry."""
        self.palette = palette or palette_for()
        super().__init__(ansi_color=True)
        self.poller = poller
        self.latest: Snapshot | None = None
        """The newest snapshot."""
        self.shown: Snapshot | None = None
        """The one on screen: the newest, or the one that `p` holds."""
        self.findings: Sequence[Finding] = ()
        """What was found in the one on screen."""
        self.journal = Journal()
        self.ui = UiState(
            title=title,
            tz=tz,
            window_s=poller.window.settings.window_s if poller else 60.0,
            targets=targets_of(poller),
            live=poller is None or not isinstance(poller.source, ReplaySource),
        )
        self._judge = judge
        self._as_json = as_json
        self._clock = clock
        self._directory = directory
        self._later = later
        self._sleep = sleep
        self._note_until = 0.0
        self._rebuilt_at = -1.0

    # Life ---------------------------------------------------------------------------------------

    def get_default_screen(self) -> TopScreen:
        """The main screen is the first one."""
        return TopScreen()

    def on_load(self) -> None:
        """Before the terminal is touched: how to give it back whole."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            try:
                loop.add_signal_handler(number, self._end, 128 + number)
            except (NotImplementedError, RuntimeError, ValueError):
                return  # not the main thread (a test), or a loop without signals

    def on_mount(self) -> None:
        """Begin to read."""
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.ui = replace(self.ui, width=self.size.width, height=self.size.height)
        self.rebuild()
        if self.poller is not None:
            self.poll()
        self.set_interval(1.0, self._tick)
        if self._later is not None:
            self.set_timer(self._later.after_s, self._do_later)

    async def on_unmount(self) -> None:
        """Give connections and files back."""
        if self.poller is not None:
            await self.poller.source.aclose()

    def _end(self, code: int) -> None:
        if not self.is_headless:
            leave_once_hung_up(code)
        self.exit(return_code=code)

    @property
    def bug(self) -> BaseException | None:
        """The exception that ended the screen; None where none did."""
        return self._exception

    def _fatal_error(self) -> None:
        """Leave without a traceback on the terminal: `run_top` raises the bug to its caller."""
        self._close_messages_no_wait()

    def on_resize(self, event: Resize) -> None:
        """The layout follows the size, nothing else."""
        self.ui = replace(self.ui, width=event.size.width, height=event.size.height)
        self.rebuild()

    # Data ---------------------------------------------------------------------------------------

    @work(exclusive=True, group="poll", exit_on_error=False)
    async def poll(self) -> None:
        """Rounds without end; a source that fails as a whole is asked again, ever more slowly."""
        assert self.poller is not None
        failures = 0
        while True:
            try:
                async for snapshot in self.poller.snapshots():
                    failures = 0
                    self.post_message(SnapshotReady(snapshot))
            except SpecctlError as error:
                failures += 1
                hint = f": {error.hint}" if error.hint else ""
                self.post_message(SourceTrouble(f"{error.message}{hint}", final=not self.ui.live))
                if not self.ui.live:
                    return
                pause = self.poller.source.interval_s * 2.0 ** min(failures - 1, 6)
                await self._sleep(min(pause, _MAX_RETRY_S), self.poller.wake)
            else:
                return

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A poll worker that ended says so on screen, and stays said."""
        if event.worker.group != "poll":
            return
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            told = f"{type(error).__name__}: {error}" if error else "unknown error"
            self.change(stopped=f"{told} (a bug in specctl; the last data stays on screen)")
        elif event.state is WorkerState.SUCCESS and self.ui.stopped is None:
            self.change(note="the source has ended: this is its last state")
            self._note_until = float("inf")

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        """Newest data."""
        self._take(message.snapshot)

    def _take(self, snapshot: Snapshot) -> None:
        self.latest = snapshot
        self.ui = replace(self.ui, trouble=None)
        if self.poller is not None:  # known once the source's own interval is
            self.ui = replace(self.ui, stale_s=self.poller.window.settings.stale_s)
        findings = self._found(snapshot)
        self.journal.update(findings, snapshot.at)
        if self.ui.paused:
            return
        self.shown, self.findings = snapshot, findings
        self.ui = replace(self.ui, log=self.journal.events)
        self.rebuild()

    def _found(self, snapshot: Snapshot) -> Sequence[Finding]:
        try:
            return self._judge(snapshot)
        except Exception as error:  # noqa: BLE001  a broken rule must not take the numbers away
            self.say(f"findings are not judged: {type(error).__name__}: {error}")
            return ()

    def on_source_trouble(self, message: SourceTrouble) -> None:
        """Nothing new, and why."""
        self.change(**{"stopped" if message.final else "trouble": message.text})

    # Screen -------------------------------------------------------------------------------------

    def now(self) -> float:
        """The time ages are told against."""
        return self._clock()

    def change(self, **changes: Any) -> None:
        """Take over a choice of the reader's, and show what follows from it."""
        self.ui = replace(self.ui, **changes)
        self.rebuild()

    def say(self, text: str) -> None:
        """Answer a key in the last row, for a while."""
        self._note_until = self.now() + _NOTE_S
        self.change(note=text)

    def rebuild(self) -> None:
        """Show the newest of everything on the screen in front."""
        if not self.is_running or not self.screen_stack:
            return
        screen = self.screen
        if isinstance(screen, TopScreen | PageScreen) and screen.is_mounted:
            self._rebuilt_at = self.now()
            screen.rebuild()

    def _tick(self) -> None:
        """Ages go on where data does not."""
        if not self.is_headless and hung_up():
            self._end(128 + signal.SIGHUP)
            return
        now = self.now()
        if self.ui.note is not None and now >= self._note_until:
            self.change(note=None)
        elif now - self._rebuilt_at >= 0.95:
            self.rebuild()

    def _do_later(self) -> None:
        assert self._later is not None
        self._later.act()
        self.journal.tell(Event(self.now(), self._later.subject, self._later.text))
        self.ui = replace(self.ui, log=self.journal.events)
        self.say(self._later.text)

    def open_detail(self, name: str) -> None:
        """One engine in full; left and right turn to its neighbours on the main screen."""
        chosen = [name]

        def build() -> tuple[Any, ...]:
            if self.shown is None:
                return ()
            return build_detail(self.shown, chosen[0], self.ui, self.now(), self.findings)

        def sibling(by: int) -> None:
            main = self.screen_stack[0]
            order = main.view.order if isinstance(main, TopScreen) and main.view else ()
            if chosen[0] in order:
                chosen[0] = order[(order.index(chosen[0]) + by) % len(order)]
                self.change(selected=chosen[0])

        self._open(PageScreen("detail", build, sibling))

    def _open(self, page: PageScreen) -> None:
        if isinstance(self.screen, PageScreen):
            if self.screen.kind == page.kind:
                self.pop_screen()
                return
            self.switch_screen(page)
        else:
            self.push_screen(page)

    # Keys ---------------------------------------------------------------------------------------

    def action_interrupt(self) -> None:
        """Ctrl-C."""
        self.exit(return_code=130)

    def action_events(self) -> None:
        """All events; again: back."""
        self._open(PageScreen("events", lambda: pages.events_page(self.shown, self.ui)))

    def action_findings(self) -> None:
        """All findings; again: back."""

        def build() -> tuple[Any, ...]:
            return pages.findings_page(self.findings, self.ui, self.now())

        self._open(PageScreen("findings", build))

    def action_help(self) -> None:
        """Keys, and why each dash is one; again: back."""
        self._open(
            PageScreen("help", lambda: pages.help_page(self.shown, self._in_view(), self.ui))
        )

    def _in_view(self) -> Sequence[str]:
        main = self.screen_stack[0]
        view = main.view if isinstance(main, TopScreen) else None
        return view.order[view.first : view.first + view.page] if view else ()

    def action_pause(self) -> None:
        """Hold the screen, or let it go."""
        if not self.ui.paused:
            self.change(paused=True)
            return
        self.ui = replace(self.ui, paused=False)
        if self.latest is not None:
            self._take(self.latest)
        self.rebuild()

    def action_window(self) -> None:
        """Look back over the next window, at once, in the data at hand."""
        if self.ui.paused:
            self.say("the screen is held: p resumes, then w changes the window")
            return
        window_s = next_window(self.ui)
        self.ui = replace(self.ui, window_s=window_s)
        if self.poller is not None:
            window = self.poller.window
            window.settings = replace(window.settings, window_s=window_s)
            if self.latest is not None:
                self._take(self.poller.snapshot(window_s))
        self.say(f"window: {span_words(window_s) if window_s else 'the whole recording'}")

    def action_read_now(self) -> None:
        """Cut the pause between two rounds short."""
        if self.poller is not None:
            self.poller.wake.set()
            self.say("reading now")

    def action_copy(self) -> None:
        """The snapshot on screen as JSON, into the terminal's clipboard."""
        if self.shown is None or self._as_json is None:
            self.say("nothing to copy yet")
            return
        text = self._as_json(self.shown)
        self.copy_to_clipboard(text)
        self.say(f"copied {len(text):,} characters of JSON, if your terminal allows it (OSC 52)")

    def action_picture(self) -> None:
        """A picture of the screen, into a file."""
        stamp = datetime.fromtimestamp(self.now(), self.ui.tz).strftime("%Y%m%dT%H%M%S")
        path = (self._directory or Path.cwd()) / f"specctl-top-{stamp}.svg"
        try:
            path.write_text(self.export_screenshot(title="specctl top"), encoding="utf-8")
        except OSError as error:
            self.say(f"no picture: {error.strerror}: {path}")
        else:
            self.say(f"picture: {path}")


def run_top(
    poller: Poller | Callable[[], Poller],
    *,
    judge: Judge = lambda _: (),
    as_json: Callable[[Snapshot], str] | None = None,
    clock: Callable[[], float] = time.time,
    title: str = "",
    ansi: bool = False,
    later: Later | None = None,
) -> int:
    """Open the screen until it is left; returns the exit code.

    Args:
        poller: The poller, or what makes it.
        judge: What is found in a snapshot.
        as_json: A snapshot as the contract's JSON, for the copy key.
        clock: The time ages are told against.
        title: What is watched, as the reader calls it.
        ansi: Only the terminal's own 16 colours.
        later: What is done, and told, some time after it opened.

    Raises:
        Exception: a bug ended the screen; the terminal has been given back by then.
    """
    app = TopApp(
        poller if isinstance(poller, Poller) else poller(),
        judge=judge,
        as_json=as_json,
        clock=clock,
        title=title,
        palette=palette_for(ansi=ansi),
        later=later,
    )
    app.run(mouse=False)
    if app.bug is not None:
        raise app.bug
    return app.return_code or 0
