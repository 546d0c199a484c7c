"""Numbers as people read them: `—` for unknown, intervals as intervals, ages, fixed units."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, tzinfo

from speccli.core.values import Number, Quantile
from speccli.core.views.text import Line, Span, line

UNKNOWN = Span("—", "unknown")


def number(value: Number, form: Callable[[float], str]) -> Span:
    """A number in its state: plain, dim where stale, a dash where unknown."""
    if value.value is None:
        return UNKNOWN
    return Span(form(value.value), "stale" if value.state == "stale" else "")


def told(value: Number, form: Callable[[float], str], unit: str = "") -> Line:
    """A number with its unit, or a dash and the reason."""
    span = number(value, form)
    if value.value is None:
        return line(span, Span(f"  {value.reason or 'unknown'}", "dim"))
    return line(span, Span(unit, span.style or "dim"))


def right(span: Span, width: int) -> Span:
    """The span at the right edge of a column; what does not fit is not shown cut."""
    text = span.text if len(span.text) <= width else "#" * width
    return Span(text.rjust(width), span.style)


def ratio(value: float) -> str:
    """0.612."""
    return f"{value:.3f}"


def signed(value: float, places: int = 0) -> str:
    """`+1,234`, `−0.5`; what is rounded to nothing has no sign."""
    text = f"{value:+,.{places}f}".replace("-", "−")
    return text if text.strip("+−0.,") else text[1:]


def tenths(value: float) -> str:
    """8.1."""
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def hundredths(value: float) -> str:
    """2.84."""
    return f"{value:,.2f}"


def position(value: float) -> str:
    """.78, and 1.0 for all of them."""
    return "1.0" if value >= 0.995 else f"{value:.2f}"[1:]


def percent(value: float) -> str:
    """45 %, of a ratio."""
    return f"{value * 100:.0f} %"


def count(value: float) -> str:
    """1,204; 12.3M from a million on."""
    return f"{value:,.0f}" if value < 999_999.5 else f"{value / 1e6:,.1f}M"


def brief(value: float) -> str:
    """412, 1.2k, 3.4M: at most five characters."""
    for limit, scale, unit in ((999.5, 1, ""), (999_500, 1e3, "k"), (9.995e8, 1e6, "M")):
        if value < limit:
            scaled = value / scale
            return f"{scaled:.1f}{unit}" if unit and scaled < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value / 1e9:.1f}G" if value < 9.95e9 else f"{value / 1e9:.0f}G"


def millis(value: float) -> str:
    """0.4, 140, 12,500: milliseconds without the unit."""
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:,.0f}"


def seconds(value: float) -> str:
    """88 ms, 4.5 s: a time, whichever unit suits it."""
    return f"{millis(value * 1000)} ms" if value < 1 else f"{value:,.2f} s"


def usd(value: float) -> str:
    """0.41: dollars, to the cent, and to the tenth of one under ten cents."""
    return f"{value:.3f}" if value < 0.0995 else f"{value:,.2f}"


def duration(seconds: float) -> str:
    """8 s, 12 min, 3 h, 2 d."""
    for limit, scale, unit in ((100, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / scale:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def span_words(seconds: float) -> str:
    """A window's length: 10 s, 1 min, 5 min, 1 h."""
    for scale, unit in ((3600, "h"), (60, "min")):
        if seconds >= scale and seconds % scale == 0:
            return f"{seconds / scale:.0f} {unit}"
    return f"{seconds:.0f} s"


def clock_time(at: float, tz: tzinfo | None) -> str:
    """14:02:51 in the reader's zone."""
    return datetime.fromtimestamp(at, tz).strftime("%H:%M:%S")


def date_time(at: float, tz: tzinfo | None) -> str:
    """2026-11-29 14:02:51 in the reader's zone."""
    return datetime.fromtimestamp(at, tz).strftime("%Y-%m-%d %H:%M:%S")


def interval(value: Quantile) -> str:
    """`25–50 ms`, `<300 ms`, `>60 s`: the bucket, never a point in it."""
    return _bounds(value, " ms", " s")


def cell_interval(value: Quantile) -> str:
    """The same in a column of milliseconds: bare `25–50`, and `1–2.5s` where it is seconds."""
    return _bounds(value, "", "s")


def _bounds(value: Quantile, ms: str, s: str) -> str:
    if value.state == "unknown":
        return UNKNOWN.text
    if value.high is None:
        return f">{_scaled(value.low, ms, s)}"
    if value.low <= 0:
        return f"<{_scaled(value.high, ms, s)}"
    if value.high < 1:
        return f"{_digits(value.low * 1000)}–{_digits(value.high * 1000)}{ms}"
    return f"{_digits(value.low)}–{_digits(value.high)}{s}"


def _scaled(seconds: float, ms: str, s: str) -> str:
    return f"{_digits(seconds * 1000)}{ms}" if seconds < 1 else f"{_digits(seconds)}{s}"


def _digits(value: float) -> str:
    text = f"{value:.4g}"
    return f"{value:,.0f}" if "e" in text else text


def quantile(value: Quantile, *, cell: bool = False) -> Span:
    """An interval, or a dash."""
    if value.state == "unknown":
        return UNKNOWN
    return Span(cell_interval(value) if cell else interval(value))
