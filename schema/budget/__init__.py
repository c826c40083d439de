"""Budgets in GraphQL: scopes, holds, debits and funding."""
