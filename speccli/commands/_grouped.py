"""Options that several commands share, given to each as one value."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints


def with_group(parameter: str, group: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command, as its `parameter`, a dataclass whose fields are options.

    The options come last in its help. Use it below `with_source`.
    """
    hints = get_type_hints(group, include_extras=True)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.name != parameter]

        @functools.wraps(command)
        def wrapper(*source: Any, **given: Any) -> Any:
            value = group(**{each.name: given.pop(each.name) for each in options})
            return command(*source, **given, **{parameter: value})

        del wrapper.__wrapped__  # else the old signature is found
        wrapper.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {each.name: each.annotation for each in [*own, *options]}
        return wrapper

    return give
