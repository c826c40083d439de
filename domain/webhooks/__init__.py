"""Webhooks: who wants which events where, what is sent, and what becomes of it. Above both contexts, whose events these are."""
