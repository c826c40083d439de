"""In which order, and when: actors, lanes, jobs, providers, and the fan-out of events."""
