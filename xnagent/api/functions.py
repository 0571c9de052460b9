"""Typed Python functions as tools of Workers: name, docstring and annotations are the definition."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast, get_type_hints, overload

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from xnagent.core.text import Json, canonical, clean
from xnagent.errors import UsageError
from xnagent.ports import ToolSpec
from xnagent.tools.given import BadArgumentsError, GivenFunction, ToolContext

P = ParamSpec("P")
R = TypeVar("R")

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
MOST_THREADS: Final = 8
"""Of one tool: functions that do not return must not take the threads of everything else."""
TIMEOUT_SECONDS: Final = 60.0
SHOWN_PROBLEMS: Final = 3
NO_SCHEMA: Final = (PydanticUserError, NameError, TypeError, ValueError)
"""What an annotation that is no type of JSON leads to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool(Generic[P, R]):
    """A function that Workers may call; called in Python it is the function."""

    function: Callable[P, R]
    name: str
    description: str
    """What models read of it: the docstring."""
    parameters: Mapping[str, Json]
    """JSON Schema of its arguments, from the annotations."""
    timeout_seconds: float = TIMEOUT_SECONDS
    may_repeat: bool = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function itself."""
        return self.function(*args, **kwargs)

    def given(self) -> GivenFunction:
        """As sessions take it."""
        spec = ToolSpec(name=self.name, description=self.description, parameters=self.parameters)
        model, context = _model_of(self.function, self.name)
        act = _Act(function=self.function, model=model, context=context, limiter=anyio.CapacityLimiter(MOST_THREADS))
        return GivenFunction(spec=spec, act=act, timeout_seconds=self.timeout_seconds, may_repeat=self.may_repeat)


class _Decorator(Protocol):
    def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(*, name: str | None = None, timeout_seconds: float = ..., may_repeat: bool = False) -> _Decorator: ...


def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    may_repeat: bool = False,
) -> FunctionTool[P, R] | _Decorator:
    """Make a typed function, async or plain, a tool for Workers: `@xnagent.tool` or `@xnagent.tool(timeout_seconds=5)`.

    Models read its docstring and a strict schema of its annotations; a parameter annotated `xnagent.ToolContext` is
    filled in. What it returns is text, or becomes JSON; what it raises is an answer that says so. A plain function runs
    in a thread. `may_repeat`: after a crash a call that had begun is made again; else the model is told that nobody
    knows what came of it. Raises UsageError for a function that cannot be one.
    """
    if function is None:
        return cast("_Decorator", partial(_made, name=name, timeout_seconds=timeout_seconds, may_repeat=may_repeat))
    return _made(function, name=name, timeout_seconds=timeout_seconds, may_repeat=may_repeat)


def _made(
    function: Callable[P, R], *, name: str | None, timeout_seconds: float, may_repeat: bool
) -> FunctionTool[P, R]:
    chosen = getattr(function, "__name__", "") if name is None else name
    if NAME.fullmatch(chosen) is None:
        raise UsageError(
            f'TOOL_NAME: "{chosen}" is no name for a tool; it takes small letters, digits and _, at most 64: '
            f'@xnagent.tool(name="…")'
        )
    description = clean(inspect.getdoc(function) or "").strip()
    if not description:
        raise UsageError(
            f"TOOL_DOCSTRING: {chosen} has no docstring; models read it, so say what the tool does and when"
        )
    if not timeout_seconds > 0:
        raise UsageError(f"TOOL_TIMEOUT: {chosen}: timeout_seconds is {timeout_seconds}; give a number above 0")
    model, _ = _model_of(function, chosen)
    return FunctionTool(
        function=function,
        name=chosen,
        description=description,
        parameters=cast("dict[str, Json]", _strict(model.model_json_schema())),
        timeout_seconds=timeout_seconds,
        may_repeat=may_repeat,
    )


def _model_of(function: Callable[..., object], name: str) -> tuple[type[BaseModel], str]:
    """Its arguments as a model, and the parameter that takes the context, empty if none does."""
    try:
        hints = get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters.values()
        fields: dict[str, Any] = {}
        context = ""
        for parameter in parameters:
            hint = _hint(parameter, hints, tool=name)
            if hint is ToolContext:
                context = parameter.name
            else:
                fields[parameter.name] = (hint, ... if parameter.default is parameter.empty else parameter.default)
        model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except NO_SCHEMA as error:
        told = str(error).splitlines()[0]
        raise UsageError(
            f"TOOL_ARGUMENTS: {name}: {told}; annotate each parameter with a type that JSON has: str, int, float, "
            f"bool, list, dict, Literal, an enum, a dataclass or a pydantic model"
        ) from error
    return model, context


def _hint(parameter: inspect.Parameter, hints: Mapping[str, object], *, tool: str) -> object:
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
        raise UsageError(f"TOOL_ARGUMENTS: {tool}: {parameter} has no name that a model could use; name each parameter")
    if parameter.name not in hints:
        raise UsageError(f"TOOL_ARGUMENTS: {tool}: {parameter.name} has no annotation; say what type it has")
    return hints[parameter.name]


def _strict(schema: object) -> object:
    """Without titles, and without properties that it does not name."""
    if isinstance(schema, dict):
        kept = {name: _strict(value) for name, value in schema.items() if name != "title" or isinstance(value, dict)}
        return {**kept, "additionalProperties": False} if isinstance(kept.get("properties"), dict) else kept
    return [_strict(value) for value in schema] if isinstance(schema, list) else schema


@dataclass(frozen=True, slots=True, kw_only=True)
class _Act:
    """Validates, calls, and makes text of what comes back."""

    function: Callable[..., object]
    model: type[BaseModel]
    context: str
    limiter: anyio.CapacityLimiter

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        fields = self._fields(arguments)
        if self.context:
            fields[self.context] = context
        call = partial(self.function, **fields)
        if inspect.iscoroutinefunction(self.function):
            return _text(await cast("Awaitable[object]", call()))
        return _text(await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self.limiter))

    def _fields(self, arguments: Mapping[str, Any]) -> dict[str, object]:
        try:
            read = self.model.model_validate(dict(arguments))
        except ValidationError as error:
            problems = error.errors(include_url=False, include_input=False, include_context=False)[:SHOWN_PROBLEMS]
            told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in problems)
            raise BadArgumentsError(told) from error
        return {name: getattr(read, name) for name in self.model.model_fields if name in read.model_fields_set}


def _text(value: object) -> str:
    """Text as it is; anything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return canonical(cast("Json", to_jsonable_python(value)))
    except PydanticSerializationError as error:
        message = f"it returned a {type(value).__name__}, which is no text and has no JSON"
        raise TypeError(message) from error
