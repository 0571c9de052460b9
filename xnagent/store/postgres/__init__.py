"""The same log in a PostgreSQL database, so that a session can go on at another machine. Needs the extra `postgres`."""
