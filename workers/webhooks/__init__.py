"""Webhooks at work: the desk, the handing out of events, the sender."""
