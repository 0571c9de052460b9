"""`xnagent serve`: pages of all sessions in the store that change while the sessions do. Reads logs, posts letters."""
