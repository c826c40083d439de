"""How things are kept: the only layer that knows PostgreSQL. Functions take the connection first and return domain types."""
