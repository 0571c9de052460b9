"""Workspaces on real git and real processes: repositories for runs, and the shell that works in them."""
