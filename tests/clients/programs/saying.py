"""How the programs of this folder talk to the tests: one JSON document a line. They run in environments of their own."""

import json
import sys
import uuid


def say(**things):
    print(json.dumps(things), flush=True)


def wait_for_the_test():
    sys.stdin.readline()


def key():
    return str(uuid.uuid4())


def tokens(amount):
    return {"unit": "TOKENS", "amount": amount}


def request(tenant, amount, *, what="estimate"):
    return {
        "idempotency_key": key(),
        "subject": {"tenant": tenant, "agent": "bot"},
        "action": {"kind": "llm.completion", "name": "model"},
        what: tokens(amount),
    }
