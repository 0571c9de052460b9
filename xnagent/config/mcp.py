"""Servers whose tools Workers get (docs/mcp.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from xnagent.config.section import Name, Seconds, Section, Url, Variable

SERVER_NAME: Final = r"^[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*$"
HEADER: Final = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"


def _check_server_url(url: str) -> str:
    if "#" in url:
        raise ValueError("an address of a server has no fragment (#…); leave it out")
    return url


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


ServerName: TypeAlias = Annotated[str, Field(pattern=SERVER_NAME, max_length=24)]
"""Letters, digits, single `-` and `_` between them, at most 24: it becomes a part of the names of tools."""
Header: TypeAlias = Annotated[str, Field(pattern=HEADER)]
Arguments: TypeAlias = tuple[str, ...]


class McpServerTable(Section):
    """One server: a program (`command`) that is talked to over its input and output, or an address (`url`)."""

    command: Name | None = None
    args: Arguments = ()
    env: Annotated[tuple[Variable, ...], BeforeValidator(_one_or_more)] = ()
    """Names of variables that the program gets beside the usual few; their values are no settings."""
    reads: tuple[Name, ...] = ()
    """Folders that services may read in the box beside what commands see: where it is installed."""
    url: Annotated[Url, AfterValidator(_check_server_url)] | None = None
    bearer_env: Variable | None = None
    """Name of the variable that holds the token for `Authorization: Bearer …`."""
    headers_env: Mapping[Header, Variable] = {}
    """Headers, each with the name of the variable that holds its value."""
    required: bool = False
    """Whether a session does not begin without it."""
    tools: tuple[Name, ...] | None = None
    """The only tools of it that Workers get; None: all."""
    start_seconds: Seconds = 30.0
    """For its start and its list of tools."""
    call_seconds: Seconds = 120.0
    """For a call."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("a server has either a command or a url")
        if self.url is None and (self.bearer_env or self.headers_env):
            raise ValueError("bearer_env and headers_env are for servers with a url")
        if self.command is None and (self.args or self.env or self.reads):
            raise ValueError("args, env and reads are for servers with a command")
        return self


class McpSettings(Section):
    """Which servers there are. A repository may not say so."""

    servers: Mapping[ServerName, McpServerTable] = {}
