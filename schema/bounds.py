"""The numbers that bound what one GraphQL request may ask for, each with its reason. What enforces them is `schema.limits`
and `schema.documents`; the command line knows them too, and imports no schema for it.
"""

from __future__ import annotations

from typing import Final

BODY_MAX: Final = 1_048_576
"""Bytes of a request, and characters of a message on a socket, unless the settings say otherwise. A report of two
thousand reservations has a third of that, as names usually are; an ordinary request has some hundred bytes."""
COST_MAX: Final = 25_000
"""Units of one operation (`schema.cost`), unless the settings say otherwise: two hundred grants with everything that is
known of each, and nearly as much again."""
DEPTH_MAX: Final = 12
"""Fields inside fields: a connection takes three, and the deepest useful question has three of them."""
ALIASES_MAX: Final = 100
"""Aliased fields of a document, fragments counted as often as they are used: a dashboard asks one list many times."""
DOCUMENT_LENGTH_MAX: Final = 100_000
"""Characters of a document: the longest useful one has a tenth of that. Long texts belong into variables."""
TOKENS_MAX: Final = 3_000
"""Words and signs of a document: parsing is paid before anything else is known. Introspection by clients has 400."""
MERGE_STEPS_MAX: Final = 40_000
"""Steps of finding out which fields of a document are the same: they grow with the square of how often one is named in
a place. Forty fragments that name the same page with five fields fit."""
ERRORS_MAX: Final = 10
"""Errors that are told of a faulty document."""
VALUES_MAX: Final = 20_000
"""Values in the variables of a request, whatever they are in: a report of reservations at its largest has 14,000."""
LIST_MAX: Final = 2_500
"""Entries of one list or object in variables. Most lists allow far fewer and say so themselves."""
TEXT_MAX: Final = 65_536
"""Characters of one text in variables; the longest that any field takes has a thousand."""
ITEMS_MAX: Final = 5_000
"""Items that all lists of one operation may ask for together: so many rows the database may have to bring."""
INTROSPECTION_RATIO: Final = 1.5
"""How many times what clients' own introspection query asks for may be asked for about the schema."""
VISITS_MAX: Final = 5_000
"""Places of an answer that are looked at to find its cost: fragments can make many out of little text."""
TOLD_MAX: Final = 200
"""Characters of a path in an error: names in a free object can be as long as a client likes."""
REMEMBERED_MAX: Final = 1_000
"""Documents that are remembered, parsed and validated."""
REMEMBERED_LENGTH_MAX: Final = 20_000
"""Characters of a document that is remembered: one with long texts in it does not come again."""
REMEMBERED_SUM_MAX: Final = 500_000
"""Characters of all of them: parsed, each takes about two hundred bytes."""
INTROSPECTIONS_MAX: Final = 8
"""Answers about the schema that are remembered: there is one tool or two, and each takes megabytes."""
