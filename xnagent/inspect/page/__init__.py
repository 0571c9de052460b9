"""One self-contained HTML page of a session: pure functions from a reading to text."""
