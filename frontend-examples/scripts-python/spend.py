#!/usr/bin/env python3
"""Hold money before work, do the work, settle what it took: with the published client, unchanged.

    pip install -r requirements.txt
    CYCLES_BASE_URL=http://127.0.0.1:7878 CYCLES_API_KEY=emk_... CYCLES_TENANT=acme-corp python spend.py AGENT PROMPT...

Exits with 0 when the work was done and paid, 1 when there was no budget for it, 2 when it broke and the hold was given back.
"""

from __future__ import annotations

import sys
import uuid

from runcycles import CyclesClient, CyclesConfig

TOKENS_MAX = 40
"""What an answer may take at most. It is held before, so that a call which is under way can always be paid."""
WHAT_TO_DO = {
    "BUDGET_EXCEEDED": "fund the budget, or ask for less",
    "BUDGET_FROZEN": "somebody froze it; ask them",
    "OVERDRAFT_LIMIT_EXCEEDED": "the debt is as large as it may be; fund the budget",
    "DEBT_OUTSTANDING": "pay the debt first",
    "LIMIT_EXCEEDED": "a policy allows so many calls a minute; come back later",
    "NOT_FOUND": "no budget covers this agent; make one for it or for its tenant",
    "UNAUTHORIZED": "the key is not valid any more",
    "FORBIDDEN": "the key is another tenant's, or lacks a permission",
}


def model(prompt: str) -> tuple[str, int]:
    """Your call of a model: the answer, and how many tokens it took. This one repeats what it was told."""
    if "fail" in prompt:
        raise RuntimeError("the model broke")
    return prompt.upper(), len(prompt.split())


def spend(client: CyclesClient, tenant: str, agent: str, prompt: str) -> str:
    """The answer, paid for. Ends the program where the budget says no; what the work raises comes out again."""
    call = str(uuid.uuid4())  # one key for each thing asked for: what is sent twice happens once
    held = client.create_reservation({
        "idempotency_key": f"{call}-hold",
        "subject": {"tenant": tenant, "agent": agent},
        "action": {"kind": "llm.completion", "name": "echo"},
        "estimate": tokens(TOKENS_MAX),
        "ttl_ms": 60_000,
    })
    if not held.is_success:
        refused(held)
    reservation_id = held.get_body_attribute("reservation_id")
    try:
        answer, used = model(prompt)
    except Exception:
        client.release_reservation(reservation_id, {"idempotency_key": f"{call}-release", "reason": "it broke"})
        raise
    paid = client.commit_reservation(reservation_id, {"idempotency_key": f"{call}-pay", "actual": tokens(used)})
    if not paid.is_success:
        refused(paid)
    return f"{answer}\nheld {TOKENS_MAX}, used {used}, given back {paid.body['released']['amount']}"


def tokens(amount: int) -> dict:
    return {"unit": "TOKENS", "amount": amount}


def refused(answer) -> None:
    code = answer.get_body_attribute("error") or "no answer"
    sys.exit(f"{code}: {answer.error_message}; {WHAT_TO_DO.get(code, 'try again with the same key')}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    config = CyclesConfig.from_env()
    with CyclesClient(config) as cycles:
        try:
            print(spend(cycles, config.tenant, sys.argv[1], " ".join(sys.argv[2:])))
        except RuntimeError as error:
            print(f"{error}: nothing was spent", file=sys.stderr)
            sys.exit(2)
