"""What a client wants to be answered in, by its `Accept` header."""

from __future__ import annotations

from typing import Final

GRAPHQL_JSON: Final = "application/graphql-response+json"
"""Its status code tells whether the request was executed at all."""
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"


def prefers_graphql_json(accept: str) -> bool:
    """Whether GraphQL's own media type is named, and not behind plain JSON. Whoever names neither gets plain JSON."""
    weights = _weights(accept)
    own = weights.get(GRAPHQL_JSON, 0.0)
    return own > 0 and own >= weights.get(JSON, 0.0)


def prefers_events(accept: str) -> bool:
    """Whether server-sent events are named before every form of JSON: some clients list them behind it always."""
    weights = _weights(accept)
    json = max(weights.get(name, 0.0) for name in (GRAPHQL_JSON, JSON, "application/*", "*/*"))
    return weights.get(EVENTS, 0.0) > json


def _weights(accept: str) -> dict[str, float]:
    """Media type to its weight; one that is given twice counts as its last."""
    weights = {}
    for part in accept.split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        weights[name] = next((_weight(word) for word in parameters if word.startswith("q=")), 1.0)
    return weights


def _weight(parameter: str) -> float:
    """The number in `q=0.8`. A malformed one counts as if it were not there."""
    digits = parameter.removeprefix("q=")
    return float(digits) if digits.replace(".", "", 1).isdecimal() and digits.isascii() else 1.0
