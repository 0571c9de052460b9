"""xnagent: a headless Planner-Executor orchestrator."""

__all__ = ["__version__"]

__version__ = "0.1.0"
