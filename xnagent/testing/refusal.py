"""A refused request: status and body in the shape that the provider gives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from xnagent.core.text import Json
from xnagent.testing.providers import Family, Provider
from xnagent.testing.reading import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is refused."""

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None
    more: tuple[tuple[str, Json], ...] = ()
    """Further fields of the error (llama.cpp)."""
    problem: str = ""
    """What `check()` says in place of the message."""
    is_overflow: bool = False
    """The prompt is too long: nothing is wrong with the client."""


def error_body(refusal: Refusal, *, wire: Wire, family: Family) -> Json:
    """The body of the answer."""
    error: dict[str, Json] = {"message": refusal.message, "type": refusal.type}
    if wire == "messages":
        made = hashlib.sha256(refusal.message.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        return {"type": "error", "error": error, "request_id": f"req_{made}"}
    match family:
        case "llama.cpp":
            return {"error": {"code": refusal.status, **error, **dict(refusal.more)}}
        case "deepseek":
            return {"error": {**error, "param": None, "code": refusal.code or refusal.type}}
        case _:
            return {"error": {**error, "param": refusal.param, "code": refusal.code}}


def overflow(provider: Provider, tokens: int, *, wire: Wire, output: int) -> Refusal | None:
    """The refusal of a prompt that does not fit, in the provider's words."""
    most = provider.window_tokens
    if not most or tokens <= most:
        return None
    return replace(_overflow(provider.family, tokens, most=most, wire=wire, output=output), is_overflow=True)


def _overflow(family: Family, tokens: int, *, most: int, wire: Wire, output: int) -> Refusal:
    if wire == "messages":
        return Refusal(message=f"prompt is too long: {tokens} tokens > {most} maximum")
    if wire == "responses":
        return Refusal(
            message="Your input exceeds the context window of this model. Please adjust your input and try again.",
            code="context_length_exceeded",
            param="input",
        )
    match family:
        case "llama.cpp":
            return Refusal(
                message=f"request ({tokens} tokens) exceeds the available context size ({most} tokens), "
                "try increasing it",
                type="exceed_context_size_error",
                more=(("n_prompt_tokens", tokens), ("n_ctx", most)),
            )
        case "deepseek":
            return Refusal(
                message=f"This model's maximum context length is {most} tokens. However, you requested "
                f"{tokens + output} tokens ({tokens} in the messages, {output} in the completion). "
                "Please reduce the length of the messages or completion."
            )
        case _:
            return Refusal(
                message=f"This model's maximum context length is {most} tokens. However, your messages resulted in "
                f"{tokens} tokens. Please reduce the length of the messages.",
                code="context_length_exceeded",
                param="messages",
            )
