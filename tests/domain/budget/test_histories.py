"""Random histories of commands against a naive model: I1 to I8 of section 2.3 at every step (`histories`)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.amounts import Unit
from domain.budget.decisions import decide
from domain.budget.invariants import check_invariants
from domain.budget.replay import Repeated
from domain.budget.settlement import advance
from domain.budget.values import Subject
from domain.outcomes import Accepted, Refusal
from tests.domain.budget.books import START
from tests.domain.budget.histories import SUBJECTS, UNITS, Trial, amount_of, command_of, play_all, step_of


@pytest.mark.parametrize("seed", range(40))
def test_a_long_history_is_decided_as_the_naive_model_decides_it(seed: int) -> None:
    chance = Random(seed)
    trial = play_all(chance, 90)
    if seed % 2:
        trial.play({"do": "tenant", "status": "CLOSED"})
        assert all(row.reserved == 0 for row in trial.rows.budgets.values())
        for _ in range(10):
            trial.play(step_of(chance))


@settings(max_examples=60, deadline=None)
@given(chance=st.randoms(use_true_random=False), length=st.integers(1, 25))
def test_any_short_history_is_decided_as_the_naive_model_decides_it(chance: Random, length: int) -> None:
    """The same, found by Hypothesis, which can show the shortest history that goes wrong."""
    play_all(chance, length)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(0, 25))
def test_a_preview_says_what_a_live_request_then_gets_and_changes_nothing(seed: int, length: int) -> None:
    """I8, and the live and evaluated answers of section 5.2 side by side."""
    chance = Random(seed)
    trial = play_all(chance, length)
    advance(trial.state, trial.now)
    before = [row.balance() for row in trial.state.all_budgets()]
    subject, unit, amount = Subject(**chance.choice(SUBJECTS)), Unit(chance.choice(UNITS)), amount_of(chance)
    books = trial.books
    dry: Any = decide(trial.state, books.reserve(amount, subject, unit=unit, dry_run=True), trial.now)
    decided: Any = decide(trial.state, books.evaluate(amount, subject, unit=unit), trial.now)
    assert [row.balance() for row in trial.state.all_budgets()] == before
    live = decide(trial.state, books.reserve(amount, subject, unit=unit), trial.now)
    if isinstance(live, Refusal) and live.code == "UNIT_MISMATCH":
        assert dry == decided == live
        return
    reason = live.code if isinstance(live, Refusal) else None
    assert dry.answer.reason_code == decided.answer.reason_code == reason
    assert dry.answer.decision == decided.answer.decision


@pytest.mark.parametrize("operation", ["commit", "release", "debit", "reserve"])
def test_a_request_sent_twice_in_one_turn_happens_once(operation: str) -> None:
    """Two asks of one batch see the same state, before anything is flushed (I5)."""
    trial = Trial({("tenant:acme", "TOKENS"): (100, 0)})
    trial.play({"do": "reserve", "subject": SUBJECTS[0], "unit": "TOKENS", "amount": 10, "ttl": 1_000, "grace": 0,
                "policy": "REJECT", "dry": False, "key": None})  # fmt: skip
    given = {"hold": trial.made[0], "unit": "TOKENS", "amount": 5, "subject": SUBJECTS[0], "policy": "REJECT"}
    given |= {"ttl": 1_000, "grace": 0, "dry": False, "key": "twice"}
    command = command_of(trial.books, operation, "new", **given)
    first, second = (decide(trial.state, command, START) for _ in range(2))
    assert isinstance(first, Accepted)
    assert second == Repeated(first.answer)
    check_invariants(trial.state)
