"""The order and the timing of budgets: their desk, turns and expiry."""
