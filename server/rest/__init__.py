"""REST wire surfaces: they translate and do not decide, and know nothing of GraphQL."""
