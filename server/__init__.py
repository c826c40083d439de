"""The process: settings, command line, HTTP, and the REST wire surfaces. Nobody imports it."""
