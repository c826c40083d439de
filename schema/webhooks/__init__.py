"""Webhooks: who is told of events by HTTP, and what became of it."""
