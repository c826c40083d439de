"""What is true about budgets: pure decisions and arithmetic over scopes, holds and debits."""
