"""How capacity is kept. `books` is the turn's: lock, read, flush; `pages` and `usage` are everybody's reads and the meter's."""
