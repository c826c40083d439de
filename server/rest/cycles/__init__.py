"""The Cycles wire under `/v1`: the published budget protocol and its admin plane, names exactly as they are published.

It translates: headers and JSON into commands, outcomes into documents and errors. It decides nothing. Numbers in
brackets in this package are sections of the budget rules. `routes.ROUTES` is what the application mounts.
"""
