"""Replays of real traces through the desks and actors of a node, and the audit of what they leave in the books."""
