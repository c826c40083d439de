"""How metered quantities are shown: hours with six places, half to even, from integers (R47)."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

from hypothesis import given
from hypothesis import strategies as st

from domain.capacity.metering import hours_text
from domain.terms import HOUR_MS


def test_whole_and_broken_hours() -> None:
    shown = [hours_text(quantity) for quantity in (0, HOUR_MS, 4_800_000, 2_400_000, 6 * HOUR_MS, 1)]
    assert shown == ["0.000000", "1.000000", "1.333333", "0.666667", "6.000000", "0.000000"]


def test_halves_go_to_the_even_neighbour_on_both_sides_of_zero() -> None:
    # 9 ms are 2.5 millionths of an hour, 27 ms are 7.5.
    assert [hours_text(quantity) for quantity in (9, 27, -9, -27)] == ["0.000002", "0.000008", "-0.000002", "-0.000008"]


def test_a_correction_too_small_to_show_has_no_sign() -> None:
    assert hours_text(-1) == "0.000000"


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_quantity_is_rounded_as_exact_decimals_round(quantity: int) -> None:
    exact = Decimal(quantity * 1_000_000) / HOUR_MS
    whole = int(exact.to_integral_value(ROUND_HALF_EVEN))
    assert Decimal(hours_text(quantity)) == Decimal(whole).scaleb(-6)
