"""Capacity at work: the desk where calls enter, the turn that decides them, and the jobs around it."""
