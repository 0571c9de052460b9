"""Only type-checked: the public API as a user would write it."""

from typing import Any, assert_type

import xnagent

version: str = xnagent.__version__


@xnagent.tool
def lookup(ticket: str, depth: int = 1) -> dict[str, object]:
    """Look a ticket up."""
    return {"ticket": ticket, "depth": depth}


@xnagent.tool(timeout_seconds=5, may_repeat=True)
async def weigh(words: list[str], context: xnagent.ToolContext) -> int:
    """Count letters."""
    return sum(map(len, words)) if context.workspace.is_dir() else 0


async def use() -> int:
    tools: list[xnagent.FunctionTool[..., Any]] = [lookup, weigh]
    options: xnagent.Options = {"model": "deepseek-chat", "max_usd": 2, "tools": tools, "checks": ["pytest -q"]}
    async with xnagent.open(**options) as session:
        assert_type(session, xnagent.Session)
        async for event in session.run("Port this package."):
            assert_type(event, xnagent.Event)
            if event.type == "run_started":
                assert_type(await session.tell("Keep the tests."), str | None)
        final = session.final
    async with xnagent.open(final.session, tools=[lookup, weigh], settings={"spine.policy": "threshold"}) as session:
        async for _ in session.resume(message="Go on."):
            await session.cancel("enough")
    assert_type(final.outcome == "completed", bool)
    assert_type(final.usage.cost_usd, float | None)
    assert_type(final.usage.by_role["planner"].requests, int)
    assert_type(lookup("T1"), dict[str, object])
    return final.exit_code


def errors(error: xnagent.XnagentError) -> int:
    match error:
        case xnagent.UsageError() | xnagent.StoreError() | xnagent.WorkspaceError():
            return error.exit_code
        case _:
            return 1
