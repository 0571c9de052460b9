"""A session's events and state as tables and JSON: pure functions, values in and values out."""
