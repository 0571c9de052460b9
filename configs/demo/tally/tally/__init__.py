"""Adds up expenses that are kept in a plain text file."""

__version__ = "0.3.0"
