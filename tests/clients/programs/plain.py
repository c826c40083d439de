"""Every call of the synchronous client, its answers read by the client's own strict models."""

import json

from runcycles import (
    BalanceResponse,
    CommitResponse,
    CyclesClient,
    CyclesConfig,
    DecisionResponse,
    EventCreateResponse,
    ReleaseResponse,
    ReservationCreateResponse,
    ReservationExtendResponse,
)
from saying import key, request, say, tokens


def read(model, response):
    """As the client itself decides what counts as a success."""
    return model.model_validate_json(json.dumps(response.body), strict=True).model_dump(mode="json", exclude_none=True)


config = CyclesConfig.from_env()
with CyclesClient(config) as client:
    created = client.create_reservation({**request(config.tenant, 5_000), "ttl_ms": 30_000})
    rid = created.get_body_attribute("reservation_id")
    extended = client.extend_reservation(rid, {"idempotency_key": key(), "extend_by_ms": 1_000})
    committed = client.commit_reservation(rid, {"idempotency_key": key(), "actual": tokens(3_000)})
    other = client.create_reservation(request(config.tenant, 10)).get_body_attribute("reservation_id")
    released = client.release_reservation(other, {"idempotency_key": key(), "reason": "not needed"})
    decided = client.decide(request(config.tenant, 10))
    applied = client.create_event(request(config.tenant, 7, what="actual"))
    balances = client.get_balances(tenant=config.tenant)
    found = client.get_reservation(rid)
    listed = client.list_reservations(status="COMMITTED", limit="10")
    refused = client.create_reservation(request(config.tenant, 10_000))
    unknown = client.commit_reservation("rsv_of_nobody", {"idempotency_key": key(), "actual": tokens(1)})
    say(
        statuses=[
            r.status for r in (created, extended, committed, released, decided, applied, balances, found, listed)
        ],
        created=read(ReservationCreateResponse, created),
        extended=read(ReservationExtendResponse, extended),
        committed=read(CommitResponse, committed),
        released=read(ReleaseResponse, released),
        decided=read(DecisionResponse, decided),
        applied=read(EventCreateResponse, applied),
        balances=read(BalanceResponse, balances),
        found=found.body,
        listed=[row["reservation_id"] for row in listed.body["reservations"]],
        refused=[refused.status, refused.body["error"], refused.error_message],
        unknown=[unknown.status, unknown.body["error"]],
        tenant=created.cycles_tenant,
        request_id=created.request_id,
        limits=[created.rate_limit_remaining, created.rate_limit_reset],
    )
