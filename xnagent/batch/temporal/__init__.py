"""The engine that spreads jobs over machines: a session is an activity at a Temporal server (extra `temporal`)."""
