"""What each command of `earmark` does. `server.cli` says how it is called."""
