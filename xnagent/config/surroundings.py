"""The environment of this process, for callers that bring none of their own."""

from __future__ import annotations

import os


def environment() -> dict[str, str]:
    """A copy of it as it is now."""
    return dict(os.environ)
