"""Why a fetch failed, told from what git and ssh print in the C locale."""

from __future__ import annotations

import re
from typing import Final

from xnagent.errors import UsageError, WorkspaceError, XnagentError
from xnagent.workspaces.git import Answer

_HOST: Final = re.compile(
    r"could not resolve (host|hostname|proxy)|unable to look up|name or service not known"
    r"|temporary failure in name resolution|no address associated",
    re.IGNORECASE,
)
_REPOSITORY: Final = re.compile(
    r"repository not found|does not appear to be a git repository|not exported|repository '[^']*' not found"
    r"|does not exist|no such file or directory|returned error: 404|info/refs not valid",
    re.IGNORECASE,
)
_ACCESS: Final = re.compile(
    r"authentication failed|could not read (username|password)|permission denied|access denied"
    r"|returned error: 40[13]|host key verification failed|invalid credentials|dubious ownership",
    re.IGNORECASE,
)
_PROTOCOL: Final = re.compile(r"transport '[^']*' not allowed|protocol .* not supported", re.IGNORECASE)
_LINES: Final = re.compile(r"^(fatal|error|ERROR|ssh|remote|Host key|[^ ]+: Permission denied)\b.*", re.MULTILINE)


def explain(answer: Answer, where: str, *, scheme: str) -> XnagentError:
    """The error to raise. UsageError where trying again is of no use, else WorkspaceError."""
    said = _said(answer)
    if _PROTOCOL.search(answer.errors):
        return UsageError(f"ADDRESS_REFUSED: {where}: {said}")
    if _HOST.search(answer.errors):
        return UsageError(f"HOST_UNKNOWN: {where}: {said}; check the name, and that this machine reaches it")
    if _ACCESS.search(answer.errors):
        login = "write ${GIT_LOGIN}@ before the host and set that variable, or use ~/.netrc"
        how = "add a key to the agent and the host to known_hosts" if scheme == "ssh" else login
        return UsageError(f"ACCESS_DENIED: {where}: {said}; {how}. It may also not exist")
    if _REPOSITORY.search(answer.errors):
        return UsageError(f"REPOSITORY_UNKNOWN: {where}: {said}; check the address")
    return WorkspaceError(f"FETCH_FAILED: {where}: {said}; try again later")


def _said(answer: Answer) -> str:
    found = _LINES.search(answer.errors)
    return " ".join((found[0] if found else answer.errors.strip() or f"exit {answer.code}").split())[:300]
