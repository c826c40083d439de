"""Capacity in GraphQL: reservations of providers, their pools and the grants on them."""
