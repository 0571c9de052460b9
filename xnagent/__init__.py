"""xnagent: a headless Planner-Executor orchestrator. What `__all__` lists is public, and is loaded when it is used."""

from typing import TYPE_CHECKING

__all__ = [
    "Event",
    "Events",
    "Final",
    "FunctionTool",
    "Options",
    "Session",
    "StoreBusyError",
    "StoreError",
    "ToolContext",
    "UsageError",
    "WorkspaceError",
    "XnagentError",
    "__version__",
    "open",
    "tool",
]

__version__ = "0.1.0"

if TYPE_CHECKING:
    from xnagent.api.events import Event, Events
    from xnagent.api.final import Final
    from xnagent.api.functions import FunctionTool, tool
    from xnagent.api.options import Options
    from xnagent.api.session import Session
    from xnagent.api.session import open_session as open
    from xnagent.errors import StoreBusyError, StoreError, UsageError, WorkspaceError, XnagentError
    from xnagent.tools.given import ToolContext
else:
    import importlib

    HOMES = {
        "Event": "api.events",
        "Events": "api.events",
        "Final": "api.final",
        "FunctionTool": "api.functions",
        "Options": "api.options",
        "Session": "api.session",
        "StoreBusyError": "errors",
        "StoreError": "errors",
        "ToolContext": "tools.given",
        "UsageError": "errors",
        "WorkspaceError": "errors",
        "XnagentError": "errors",
        "open": "api.session",
        "tool": "api.functions",
    }

    def __getattr__(name: str) -> object:
        """Load what is asked for: importing xnagent alone loads nothing."""
        if name not in HOMES:
            raise AttributeError(f"module 'xnagent' has no attribute {name!r}")
        module = importlib.import_module(f"xnagent.{HOMES[name]}")
        return getattr(module, "open_session" if name == "open" else name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
