"""The log as one SQLite file for each session: written by one thread of one process, read by anybody."""
