"""What is true: pure decisions and arithmetic. Standard library only; no clock, no ids, no randomness, no I/O."""
