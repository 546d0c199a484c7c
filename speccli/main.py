"""The `specctl` command: where the console script enters, and how it exits."""

from __future__ import annotations

import errno
import math
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from speccli import __version__, diagnostics, output, start
from speccli.core.errors import FULL, FULL_HINT, ExitCode, SpecctlError

EXIT_CODES = """Exit codes: 0 ok · 1 warning · 2 critical · 3 unknown (no data, unreachable, not
authorised, deadline) · 64 usage · 70 a bug in specctl · 130 interrupted."""


COMMANDS = {
    "recipes": "List and show the built-in recipes: targets x methods x GPUs.",
    "plan": "Say what a recipe would do, before a GPU is asked for.",
    "render": "Write the manifests of a recipe.",
    "deploy": "Deploy a recipe, and prove that it speculates.",
    "rollback": "Bring a former revision of a deployment back.",
    "fallback": "Retreat from a draft that has gone bad, and come back.",
    "delete": "Take a deployment away, with all that belongs to it.",
    "list": "List what is deployed, on a cluster and on this machine.",
    "draft": "Say whether a draft fits its target; train or fetch one.",
    "kernels": "Check the kernels that verify drafts, on this GPU and in this image.",
    "bench": "Measure what speculation earns, and judge it.",
    "report": "Write a bench as Markdown, HTML, JSON and a skill card.",
    "top": "Watch a pool live, on one screen.",
    "status": "Say what a pool is doing, once, and what is wrong.",
    "record": "Keep an incident in a file.",
    "replay": "Look at a kept incident again.",
    "cost": "Say what a million tokens costs, here and elsewhere.",
    "alert": "Find drift and faults, for cron and monitoring systems.",
    "baseline": "Keep what a sound pool's acceptance is, to judge drift by.",
    "doctor": "Say what is missing or wrong here, with the fix.",
    "sim": "Run simulated engines, labelled SIMULATED.",
    "demo": "See a draft go bad, and be found.",
}
"""One module of speccli.commands each, with the first line of its help, in `--help`'s order.

A module has a function `command`, or a Typer `app` where it is a group. It is imported when its
command is run: the list of commands must not cost all of them.
"""

SETTINGS = {"help_option_names": ["-h", "--help"]}


class SpecctlGroup(TyperGroup):
    """Loads commands when they are run, and turns errors into the contract's exit codes.

    Here and not in `main`, so that tests which run the Typer object see the same codes.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now; None where there is none of that name."""
        return _load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table, without importing what is in it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        """Run; an interrupt is passed on, of which Typer makes 130 without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            raise typer.Abort from stopped

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and exit with the contract's code."""

        def run() -> Any:
            return super(SpecctlGroup, self).main(
                args=args,
                prog_name=prog_name or "specctl",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        code = _coded(run)
        # CPython ends `-m` by the signal itself once an interrupt has left code made from a string
        # (a dataclass being defined), caught or not: running one clears that mark.
        exec("")  # noqa: S102
        if not standalone_mode:
            return code
        sys.exit(code)


def _load(name: str) -> Any:
    module = import_module(f"speccli.commands.{name}")
    group: typer.Typer | None = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings=SETTINGS,
        )
        group.command(name, epilog=EXIT_CODES)(module.command)
    command = typer.main.get_command(group)
    command.name = name
    _refuse_no_values(command)
    start.raise_it()
    return command


def _refuse_no_values(command: Any) -> None:
    """Have a command, and those below it, refuse NaN, infinity and the empty text.

    Here and not at each option: Typer takes the first two for a float, and NaN passes any range;
    what is empty (a variable of a script that is not set) would read as not given, or as a name.
    """
    for below in getattr(command, "commands", {}).values():
        _refuse_no_values(below)
    for parameter in command.params:
        parameter.callback = _finite(parameter.callback)
        parameter.type_cast_value = _not_empty(parameter, parameter.type_cast_value)


def _not_empty(parameter: Any, then: Callable[..., Any]) -> Callable[..., Any]:
    def check(context: Any, value: Any) -> Any:
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, str) and not each.strip():
                said = "it is empty. Leave it out, or say which"
                raise typer.BadParameter(said, ctx=context, param=parameter)
        return then(context, value)

    return check


def _finite(then: Callable[..., Any] | None) -> Callable[..., Any]:
    def check(context: Any, parameter: Any, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            said = f"{value} is not a finite number."
            raise typer.BadParameter(said, ctx=context, param=parameter)
        return value if then is None else then(context, parameter, value)

    return check


def _coded(run: Callable[[], Any]) -> int:
    try:
        result = run()
    except SpecctlError as error:
        diagnostics.error(error.message, error.hint)
        return int(error.exit_code)
    except (KeyboardInterrupt, typer.Abort) as stopped:
        return _interrupted(getattr(stopped.__cause__, "__notes__", ()))
    except SystemExit as leaving:
        # Typer's help leaves with 1, "warning", when its reader is gone (`| head`).
        if isinstance(leaving.__context__, BrokenPipeError):
            output.abandon()
            return int(ExitCode.OK)
        raise
    except OSError as error:
        return _unwritable(error)
    except Exception as error:  # noqa: BLE001 - passed on unless it is a usage error
        return _usage(error)
    if result == ExitCode.INTERRUPTED:
        return _interrupted()
    return result if isinstance(result, int) else 0


def _interrupted(kept: Sequence[str] = ()) -> int:
    """One line, with what was `kept` and how to go on where the command noted it; then 130."""
    start.leave_at_once()
    diagnostics.say("interrupted" + (f": {'; '.join(kept)}" if kept else ""))
    start.leave_at_once(said=True)
    return int(ExitCode.INTERRUPTED)


def _unwritable(error: OSError) -> int:
    """What takes no more; any other error of a named file or a socket is a bug here."""
    innermost = list(traceback.walk_tb(error.__traceback__))[-1][0]
    on_stdout = isinstance(error, output.Unwritable) or innermost.f_code.co_name == "echo"  # help
    full = FULL | {errno.EIO, errno.EBADF} if on_stdout else FULL
    if error.errno not in full or (error.filename is not None and error.errno not in FULL):
        raise error
    if on_stdout:
        output.abandon()
    what = "to standard output" if on_stdout else error.filename or "a file"
    diagnostics.error(f"cannot write {what}: {error.strerror}", FULL_HINT)
    return int(ExitCode.UNKNOWN)


def _usage(error: Exception) -> int:
    """Typer's own usage errors, known by shape: where their class lives changes by version."""
    tell = getattr(error, "format_message", None)
    if tell is None:
        raise error
    message = tell().replace("argument(s) ()", "argument ''")
    if type(error).__name__ == "NoArgsIsHelpError":
        output.text(message)
        return int(ExitCode.OK)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "specctl"
    if context is not None and (meant := re.fullmatch(r"No such command '(.+)'\.?", message)):
        import difflib

        near = difflib.get_close_matches(
            meant.group(1), context.command.list_commands(context), n=1
        )
        message += f" Did you mean {near[0]}?" if near else ""
    first, _, rest = message.partition("\n")
    diagnostics.error(" ".join([first, *rest.split()]).rstrip("."), f"try `{command} --help`")
    return int(ExitCode.USAGE)


app = typer.Typer(
    cls=SpecctlGroup,
    name="specctl",
    help="The operator's console for speculative decoding: is it on, is it right, is it worth it.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=SETTINGS,
)


def _version(wanted: bool) -> None:
    if wanted:
        output.text(f"specctl {__version__}")
        raise typer.Exit


@app.callback(epilog=EXIT_CODES)
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """The operator's console for speculative decoding: is it on, is it right, is it worth it."""


def main() -> None:
    """Run the command line; a fault of specctl's own is one line, a report, and exit 70."""
    output.prepare()
    try:
        app()
    except Exception as error:  # noqa: BLE001 - the last stop for bugs
        diagnostics.bug(error)
        sys.exit(int(ExitCode.BUG))
