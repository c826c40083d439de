"""The world of `earmark demo`: built once through the desks, kept alive by slow traffic."""
