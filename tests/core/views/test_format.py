"""Numbers as people read them."""

import pytest

from speccli.core.views import format as fmt


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (0.0, 0, "0"),
        (-0.3, 0, "0"),
        (0.4, 0, "0"),
        (-0.04, 1, "0.0"),
        (0.6, 0, "+1"),
        (-10.0, 0, "−10"),
        (-1234.5, 1, "−1,234.5"),
    ],
)
def test_what_is_rounded_to_nothing_has_no_sign(value: float, places: int, text: str) -> None:
    assert fmt.signed(value, places) == text
