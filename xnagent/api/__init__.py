"""xnagent for Python programs: what `xnagent/__init__.py` lists is public, and nothing else here."""
