"""The box that commands run in: what it is made of, which one works here, and what it did to a command."""
