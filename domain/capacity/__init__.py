"""Capacity: slots of a provider's reservation, committed to tenants for a term. Here a bare *reservation* is the provider's."""
