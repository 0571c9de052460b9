"""Two or three scripted models behind servers of their own, of which some fail: what the tests of fallback share."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.e2e.bench import Ended, call, finish, reply
from tests.e2e.test_crash import sensible
from xnagent.core.spine_events import ModelReplaced, RequestStarted
from xnagent.testing.choice import Brain, RequestView
from xnagent.testing.script import Fault, ReplySpec
from xnagent.testing.server import ScriptedServer

PROVIDER = {"chat": "generic", "responses": "openai", "messages": "anthropic"}
PRICE = {"input_usd": 2.0, "cached_usd": 0.2, "output_usd": 8.0}
FAULTS = {
    "overloaded": Fault(status=503),
    "rate_limited": Fault(status=429, headers={"Retry-After": "0.01"}),
    "quota": Fault(status=402, body={"error": {"message": "no credit", "code": "insufficient_balance"}}),
    "authentication": Fault(status=401, body={"error": {"message": "bad key", "type": "authentication_error"}}),
    "not_found": Fault(status=404, body={"error": {"message": "no such model", "code": "model_not_found"}}),
    "content_refused": Fault(status=400, body={"error": {"message": "no", "code": "content_policy_violation"}}),
    "protocol": Fault(html=True),
    "bad_request": Fault(status=400, body={"error": {"message": "what?", "code": "invalid_request_error"}}),
    "output_budget": Fault(status=400, body={"error": {"message": "max_tokens is too large: 9 > 8"}}),
    "context_overflow": Fault(status=400, body={"error": {"message": "long", "code": "context_length_exceeded"}}),
}
"""By the kind that they are taken for."""
FOR_ANOTHER = ("overloaded", "rate_limited", "quota", "authentication", "not_found", "content_refused", "protocol")
FOR_US = ("bad_request", "output_budget", "context_overflow")


def failing(kind: str, *, role: str = "planner", after: int = 0, brain: Brain = sensible) -> Brain:
    """Fails for the role once it has answered so many requests of the conversation."""

    def answer(view: RequestView) -> ReplySpec:
        if view.role == role and view.number > after:
            return ReplySpec(fault=FAULTS[kind])
        return brain(view)

    return answer


def noting(facts: int, text: str = "", *, ids: str = "m") -> Brain:
    """A Planner that records so many facts, one a step, and finishes; it counts what its history holds.

    `ids` is what its call ids begin with: two real providers never make the same one.
    """

    def answer(view: RequestView) -> ReplySpec:
        made = sum(message["role"] == "assistant" for message in view.messages)
        if made >= facts:
            return finish().reply
        return reply(call("record_fact", text=f"It is {made} {text}".strip(), call_id=f"{ids}_{made}"), reasoning="Hm.")

    return answer


def behind(server: ScriptedServer, wire: str = "chat", **more: Any) -> dict[str, Any]:
    """A model's row of the table."""
    return {"base_url": server.base_url, "wire": wire, "price": PRICE, **more}


def listed(wire: str = "chat", role: str = "planner", **rows: Mapping[str, Any]) -> dict[str, Any]:
    """Settings: the model `m` on that wire, and the others behind it."""
    return {
        "planner__model__wire": wire,
        f"{role}__model__fallback": tuple(rows),
        "models": {"m": {"price": PRICE}, **rows},
    }


def check_books(ended: Ended, **servers: ScriptedServer) -> None:
    """What each server answered is what the ledger says of its model, to the token; by role and in all it adds up."""
    usage = ended.record["usage"]
    for name, server in servers.items():
        assert not server.problems, server.problems
        told, books = usage["by_model"].get(name, {"requests": 0}), server.books
        assert told["requests"] == books.requests
        if books.requests:
            keys = ("input_tokens", "output_tokens", "cached_tokens")
            assert [told[key] for key in keys] == [getattr(books, key) for key in keys]
    for kind in ("by_model", "by_role"):
        assert sum(part["requests"] for part in usage[kind].values()) == usage["requests"]
        assert round(sum(part["cost_usd"] for part in usage[kind].values()), 6) == round(usage["cost_usd"], 6)


def replaced(ended: Ended, agent: str = "planner") -> list[tuple[str, str, str]]:
    """From which model to which, and why."""
    return [(one.replaced, one.model, one.cause) for one in ended.of(ModelReplaced) if one.agent == agent]


def models_of(ended: Ended, agent: str = "planner") -> list[str]:
    """The model of each request of an agent."""
    starts: Iterable[RequestStarted] = ended.of(RequestStarted)
    return [ended.state.manifests[one.manifest].model for one in starts if one.agent == agent]
