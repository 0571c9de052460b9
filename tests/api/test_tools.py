"""Typed functions as tools of Workers."""

import threading
import time
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import anyio
import anyio.lowlevel
import pytest
from pydantic import Field

import xnagent
from tests.api.kit import Kit
from tests.api.kit import played as resumed
from tests.e2e.bench import call, finish, on, scripted, start, submit, task
from xnagent.app.given import own_names
from xnagent.app.host import Host
from xnagent.app.replay import replay_session
from xnagent.core.given_events import ToolsGiven
from xnagent.core.ids import SessionId
from xnagent.core.spine_events import ManifestRecorded, ToolStarted
from xnagent.testing.server import ScriptedServer
from xnagent.tools.given import GivenCallTool

MAIN = threading.get_ident()


@pytest.fixture
def anyio_backend() -> str:
    """One backend, but for the test that asks for both."""
    return "asyncio"


class Colour(Enum):
    RED = "red"


@dataclass
class Place:
    line: int
    file: str = "a.py"


@xnagent.tool
def describe(
    number: Annotated[int, Field(description="Of the ticket.", ge=1)],
    place: Place,
    colour: Colour = Colour.RED,
    part: Literal["title", "text"] = "title",
    words: list[str] | None = None,
) -> dict[str, Any]:
    """Tell everything.

    Use it often.
    """
    return {"number": number, "line": place.line, "colour": colour, "part": part, "words": words}


@xnagent.tool
def where(context: xnagent.ToolContext) -> list[object]:
    """Say where it runs."""
    is_main = threading.get_ident() == MAIN
    return [context.run, context.session[:2], (context.workspace / "a.py").read_text(), is_main]


@xnagent.tool(name="long_one")
async def long() -> str:
    """Say a lot."""
    await anyio.lowlevel.checkpoint()
    return "\n".join(f"line {n} \x1b[31mred" for n in range(3_000))


@xnagent.tool
async def fail(how: str) -> None:
    """Fail, or say nothing."""
    if how == "group":
        raise ExceptionGroup("many", [ValueError("one")])
    if how:
        raise RuntimeError(how)


@xnagent.tool(timeout_seconds=0.05)
async def late() -> str:
    """Take too long."""
    await anyio.sleep(30)
    return "never"


@xnagent.tool(timeout_seconds=0.05)
def late_thread() -> str:
    """Take too long in a thread."""
    time.sleep(0.4)
    return "never"


@xnagent.tool
def odd() -> object:
    """Return what has no JSON."""
    return object()


ALL = (describe, where, long, fail, late, late_thread, odd)


def worker(*calls: tuple[str, dict[str, Any]]):
    rules = [on(calls=[call(name, **fields)]) for name, fields in calls]
    return scripted(start(task("a")), finish("settled"), workers={"a": [*rules, submit()]})


async def played(kit: Kit, *calls: tuple[str, dict[str, Any]], tools: Any = ALL, **more: Any):
    with ScriptedServer(worker(*calls)) as server:
        async with xnagent.open(**kit.options(server, tools=tools, **more)) as session:
            async for _ in session.run("Make it so."):
                pass
        server.check()
    assert session.final.outcome == "completed"
    return kit.ended(session.id)


def test_annotations_become_a_strict_schema():
    assert describe.parameters["additionalProperties"] is False
    assert describe.parameters["required"] == ["number", "place"]
    assert describe.parameters["properties"] == {
        "number": {"description": "Of the ticket.", "minimum": 1, "type": "integer"},
        "place": {"$ref": "#/$defs/Place"},
        "colour": {"$ref": "#/$defs/Colour", "default": "red"},
        "part": {"default": "title", "enum": ["title", "text"], "type": "string"},
        "words": {"anyOf": [{"items": {"type": "string"}, "type": "array"}, {"type": "null"}], "default": None},
    }
    assert describe.parameters["$defs"]["Place"]["additionalProperties"] is False
    assert (describe.name, describe.description) == ("describe", "Tell everything.\n\nUse it often.")
    assert where.parameters == {"additionalProperties": False, "properties": {}, "type": "object"}
    assert describe(1, Place(2))["line"] == 2


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_functions_answer_and_whatever_fails_is_an_answer(kit: Kit):
    ended = await played(
        kit,
        ("describe", {"number": "7", "place": {"line": 3}}),
        ("describe", {"number": 0, "place": {"line": "x"}}),
        ("describe", {"number": 1, "place": {"line": 1}, "wrong": 2}),
        ("where", {}),
        ("fail", {"how": ""}),
        ("fail", {"how": "it broke"}),
        ("fail", {"how": "group"}),
        ("late", {}),
        ("late_thread", {}),
        ("odd", {}),
        ("long_one", {}),
    )
    results = [one for one in ended.results("r1") if one.tool != "submit"]
    texts = [one.text for one in results]
    assert [one.code for one in results] == [
        *("ok", "BAD_ARGS", "BAD_ARGS", "ok", "ok", "TOOL_FAILED", "TOOL_FAILED"),
        *("TIMEOUT", "TIMEOUT", "TOOL_FAILED", "ok"),
    ]
    assert texts[0] == '{"colour":"red","line":3,"number":7,"part":"title","words":null}'
    assert "number: " in texts[1]
    assert "place.line: " in texts[1]
    assert "unknown field wrong" in texts[2]
    assert texts[3] == '["r1","s-","x = 1\\n",false]'
    assert texts[4] == "(nothing)"
    assert texts[5].startswith("TOOL_FAILED: fail raised RuntimeError: it broke. ")
    assert "ExceptionGroup" in texts[6]
    assert "within 0.05 s" in texts[7]
    assert "no JSON" in texts[9]
    assert len(texts[10]) < 13_000
    assert "\x1b" not in texts[10]
    assert results[10].artifact is not None
    assert "use read with it" in texts[10]


async def test_definitions_are_sorted_frozen_and_replayed_without_the_program(kit: Kit):
    ended = await played(kit, ("where", {}), tools=[where, describe])
    (given,) = ended.of(ToolsGiven)
    assert [one.name for one in given.tools] == ["describe", "where"]
    (manifest,) = [one for one in ended.of(ManifestRecorded) if one.role == "worker"]
    assert given.tools[0].parameters in manifest.tools
    names = [part.partition('"')[0] for part in manifest.tools.split('"name":"')[1:]]
    assert names == sorted(names)
    assert "where" not in next(one for one in ended.of(ManifestRecorded) if one.role == "planner").tools
    replayed = replay_session(Host(home=kit.home, environ={}), SessionId(str(ended.state.session)))
    assert replayed.problems == []
    assert [started.effect for started in ended.of(ToolStarted)] == ["opaque"]


async def test_a_session_goes_on_with_the_same_tools_only(kit: Kit):
    @xnagent.tool(name="where")
    async def hanging(context: xnagent.ToolContext) -> None:
        """Say where it runs."""
        await anyio.sleep_forever()

    @xnagent.tool(name="where")
    def other_text(context: xnagent.ToolContext) -> str:
        """Say it otherwise."""
        return "here"

    @xnagent.tool(name="where")
    def other_arguments(name: str) -> str:
        """Say where it runs."""
        return name

    script = scripted(
        start(task("a")),
        finish("settled"),
        workers={"a": [on(calls=[call("where")]), on("CANCELLED", calls=[call("where")]), submit("here")]},
    )
    with ScriptedServer(script) as server:
        async with xnagent.open(**kit.options(server, tools=[hanging])) as session:
            async for event in session.run("Make it so."):
                if event.type == "tool_started":
                    break
        assert session.final.outcome == "interrupted"
        for tools, told in (
            ([], r"TOOL_MISSING: .*where; .*xnagent.open\('s-"),
            ([hanging, odd], "TOOL_ADDED: .*odd"),
            ([other_arguments], "TOOL_CHANGED: where"),
        ):
            with pytest.raises(xnagent.UsageError, match=told):
                await resumed(kit.options(server, tools=tools), session.id)
        await resumed(kit.options(server, tools=[other_text]), session.id)
        server.check()
    ended = kit.ended(session.id)
    assert ended.outcome == "completed"
    assert len([one for one in ended.of(ManifestRecorded) if one.role == "worker"]) == 1
    assert [one.text for one in ended.results("r1", "where")][-1] == "here"


async def test_a_rule_takes_a_tool_away_by_its_name(kit: Kit):
    ended = await played(kit, ("odd", {}), ("where", {}), tools=[odd, where], deny=["Tool(odd)"])
    denied, answered = [one for one in ended.results("r1") if one.tool != "submit"]
    assert (denied.code, answered.code) == ("DENIED", "ok")
    assert "Tool(odd)" in denied.text
    (manifest,) = [one for one in ended.of(ManifestRecorded) if one.role == "worker"]
    assert '"name":"odd"' not in manifest.tools
    assert '"name":"where"' in manifest.tools


@pytest.mark.parametrize(("may_repeat", "code"), [(False, "INTERRUPTED"), (True, None)])
async def test_a_call_that_a_killed_process_began_is_repeated_only_where_it_may_be(may_repeat: bool, code: str | None):
    function = xnagent.tool(name="once", may_repeat=may_repeat)(where.function).given()
    tool = GivenCallTool(tool=function.definition, function=function, session="s-x")
    outcome = await tool.reconcile(None, None)
    assert (None if outcome is None else outcome.code) == code


async def test_names_of_tools_that_are_there_already_are_refused(kit: Kit):
    assert {"bash", "submit", "plan", "skill"} <= own_names()
    bash = xnagent.tool(name="bash")(where.function)
    with ScriptedServer(worker()) as server:
        for tools, told in (([bash], '"bash" is the name'), ([where, where], 'two tools are called "where"')):
            with pytest.raises(xnagent.UsageError, match=told):
                async with xnagent.open(**kit.options(server, tools=tools)) as session:
                    await anext(session.run("Make it so."))


def bare(number: int) -> int:
    return number


def unannotated(number):
    """Do it."""
    return number


def wild(*numbers: int) -> int:
    """Do it."""
    return len(numbers)


def strange(lock: threading.Event) -> None:
    """Do it."""


@pytest.mark.parametrize(
    ("function", "options", "told"),
    [
        (bare, {}, "TOOL_DOCSTRING: bare"),
        (unannotated, {}, "TOOL_ARGUMENTS: unannotated: number has no annotation"),
        (wild, {}, "TOOL_ARGUMENTS: wild: "),
        (strange, {}, "TOOL_ARGUMENTS: strange: "),
        (strange, {"name": "Not A Name"}, 'TOOL_NAME: "Not A Name"'),
        (wild, {"timeout_seconds": 0}, "TOOL_TIMEOUT: wild"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_where_it_stands(function: Any, options: Any, told: str):
    with pytest.raises(xnagent.UsageError, match=told):
        xnagent.tool(**options)(function)
