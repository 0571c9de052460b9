"""Only type-checked: the public API as a user would write it."""

import xnagent

version: str = xnagent.__version__
