"""How budgets, their holds and their ledgers are kept."""
