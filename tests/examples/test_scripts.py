"""The scripts among the examples, run as anybody would against a live server: what they print, and what is on the books."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from tests.clients.environments import CLIENT
from tests.examples.conftest import TENANT, Shop
from tests.examples.programs import EXAMPLES, Ended, needed, run

pytestmark = pytest.mark.timeout(600)  # the first run installs the clients
PYTHON = EXAMPLES / "scripts-python"
SHELL = EXAMPLES / "scripts-shell"
A_SLOT_OF_TEN = ("1", "24")

Order = Callable[..., Awaitable[Ended]]


def order_in_python(shop: Shop) -> Order:
    python = CLIENT.python()

    async def order(*arguments: str, settings: Mapping[str, str] = shop.as_root) -> Ended:
        return await run(python, PYTHON / "grant.py", f"{shop.address}/graphql", *arguments, settings=settings)

    return order


def order_in_shell(shop: Shop) -> Order:
    bash, _, _ = needed("bash"), needed("curl"), needed("jq")

    async def order(*arguments: str, settings: Mapping[str, str] = shop.as_root) -> Ended:
        return await run(bash, SHELL / "grant.sh", shop.address, *arguments, settings=settings)

    return order


languages = pytest.mark.parametrize("language", [order_in_python, order_in_shell], ids=["python", "shell"])


@languages
async def test_an_order_is_fulfilled_exactly_once(shop: Shop, language: Callable[[Shop], Order]) -> None:
    order = language(shop)
    made = await order("order-1", TENANT, "4", "24")
    assert (made.code, made.err) == (0, "")
    (grant_id,) = await shop.grants()
    assert re.match(rf"granted: {grant_id}\b.* 4 slots ", made.out)
    await shop.world.add_reservation("roomier", total=50)
    again = await order("order-1", TENANT, "4", "24")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(f"fulfilled before: {grant_id}"), "wherever there is most room by now"
    assert await shop.grants() == [grant_id]


@languages
async def test_a_full_reservation_says_when_it_fits(shop: Shop, language: Callable[[Shop], Order]) -> None:
    order = language(shop)
    await order("order-1", TENANT, "8", "24")
    later = await order("order-2", TENANT, "3", "24")
    assert later.code == 1
    assert re.search(r"full: .*fit from 20\d\d-\d\d-\d\dT", later.out + later.err)
    never = await order("order-3", TENANT, "11", "24")
    assert never.code == 1
    assert re.search(r"full: .*never fit.* 10\b", never.out + never.err)
    assert len(await shop.grants()) == 1


@languages
async def test_every_other_refusal_is_told(shop: Shop, language: Callable[[Shop], Order]) -> None:
    order, key = language(shop), shop.as_tenant["CYCLES_API_KEY"]
    mistaken = await order("order-1", TENANT, "0", "24")
    unknown = await order("order-2", "nobody-here", *A_SLOT_OF_TEN)
    not_root = await order("order-3", TENANT, *A_SLOT_OF_TEN, settings={"EARMARK_KEY": key})
    strange = await order("order-4", TENANT, *A_SLOT_OF_TEN, settings={"EARMARK_KEY": "not a key of ours"})
    place = {"accountId": shop.world.account_id, "reservationId": "res"}
    assert (await shop.world.mutate("unbindReservation", place))["__typename"] == "CapacityReservation"
    not_now = await order("order-5", TENANT, *A_SLOT_OF_TEN)
    ends = [mistaken, unknown, not_root, strange, not_now]
    assert [end.code == 0 for end in ends] == [False] * 5
    said = [(end.out + end.err).strip() for end in ends]
    words = (
        "slots must be from 1",
        "not offered to this tenant",
        "root tenant",
        "valid API key",
        "not bound to a pool",
    )
    assert [word in line for word, line in zip(words, said, strict=True)] == [True] * 5, said
    assert not any("Traceback" in line for line in said)
    assert await shop.grants() == []


async def test_tokens_are_held_before_the_work_and_paid_after_it(shop: Shop) -> None:
    python = CLIENT.python()
    settings = {"PATH": "/usr/bin:/bin", **shop.as_tenant}

    async def spend(*prompt: str) -> Ended:
        return await run(python, PYTHON / "spend.py", "planner", *prompt, settings=settings)

    done = await spend("write", "a", "haiku")
    assert (done.code, done.out) == (0, "WRITE A HAIKU\nheld 40, used 3, given back 37\n")
    assert await shop.budget() == (3, 0)
    broken = await spend("please", "fail")
    assert (broken.code, broken.err.strip()) == (2, "the model broke: nothing was spent")
    assert await shop.budget() == (3, 0)
    await spend(*["word"] * 39), await spend(*["word"] * 39)
    denied = await spend("one", "more")
    assert (denied.code, denied.out) == (1, "")
    assert denied.err.startswith("BUDGET_EXCEEDED: ")
    assert await shop.budget() == (81, 0)


async def test_a_command_runs_only_within_the_budget(shop: Shop) -> None:
    bash, _, _ = needed("bash"), needed("curl"), needed("jq")

    async def spend(most: int, *command: str) -> Ended:
        return await run(bash, SHELL / "spend.sh", "planner", str(most), *command, settings=shop.as_tenant)

    done = await spend(60, "sh", "-c", "echo the work; echo 32")
    assert (done.code, done.out) == (0, "the work\nused 32, given back 28\n")
    failed = await spend(60, "sh", "-c", "exit 7")
    assert (failed.code, failed.err.strip()) == (7, "the command failed with 7; nothing was spent")
    assert await shop.budget() == (32, 0)
    denied = await spend(69, "sh", "-c", "echo never; echo 1")
    assert (denied.code, denied.out) == (75, "")
    assert denied.err.startswith("BUDGET_EXCEEDED: ")
    assert await shop.budget() == (32, 0)


@pytest.mark.parametrize("script", ["grant.sh", "spend.sh"])
async def test_a_script_without_arguments_says_how_it_is_used(script: str) -> None:
    told = await run(needed("bash"), SHELL / script, settings={})
    assert told.code == 64
    assert f"./{script} " in told.out


@pytest.mark.parametrize("path", sorted([*PYTHON.glob("*.py"), *SHELL.glob("*.sh")]), ids=lambda path: path.name)
def test_a_script_fits_on_a_page_or_two(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 130
