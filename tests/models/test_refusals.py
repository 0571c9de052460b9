"""What each provider really answers when it refuses, and which of the closed set of kinds that is."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.speaking import WIRES, stream_of
from xnagent.core.items import AssistantText
from xnagent.errors import FAULT_KINDS, RETRYABLE, ModelError
from xnagent.models.decoding import fold
from xnagent.models.faults import classify, classify_event
from xnagent.models.wires import BY_NAME

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def openai(message: str, kind: str | None = "invalid_request_error", code: str | None = None) -> dict:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic(kind: str, message: str) -> dict:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def openrouter(code: int, message: str, **metadata: object) -> dict:
    return {"error": {"message": message, "code": code, "metadata": metadata}, "user_id": "u"}


def glm(code: str, message: str) -> dict:
    return {"error": {"code": code, "message": message}}


def vllm(message: str, kind: str = "BadRequestError", code: int = 400) -> dict:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def llama(code: int, message: str, kind: str, **more: int) -> dict:
    return {"error": {"code": code, "message": message, "type": kind, **more}}


def ollama(message: str) -> dict:
    return {"error": {"message": message, "type": "api_error", "param": None, "code": None}}


def gemini(code: int, status: str, message: str, *details: dict) -> list:
    return [{"error": {"code": code, "message": message, "status": status, "details": list(details)}}]


def quota_failure(quota: str) -> dict:
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": quota}]}


QUOTA = "You exceeded your current quota, please check your plan and billing details."
TOO_LONG = anthropic("invalid_request_error", "prompt is too long: 210001 tokens > 200000 maximum")
DEEPSEEK_LONG = (
    "This model's maximum context length is 131072 tokens. However, you requested {} tokens ({} in the messages, "
    "{} in the completion). Please reduce the length of the messages or completion."
)
VLLM_LONG = "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
VLLM_OUTPUT = (
    "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 40960 tokens "
    "and your request has 10000 input tokens (32000 > 40960 - 10000)."
)
ROUTER_LONG = (
    "This endpoint's maximum context length is 262144 tokens. However, you requested about 284283 tokens "
    "({} of text input, 13176 of tool input, {} in the output)."
)
MANY_TOKENS = "Request too large on tokens per min (TPM): Limit 30000, Requested 35000."
AGAIN = "the account's limit, regained on 2026-12-01"

OPENAI = [
    (401, openai("Incorrect API key provided: sk-x.", code="invalid_api_key"), "authentication"),
    (403, openai("Country, region, or territory not supported", "request_forbidden", "unsupported"), "authentication"),
    (404, openai("The model `x` does not exist", code="model_not_found"), "not_found"),
    (429, openai(QUOTA, "insufficient_quota", "insufficient_quota"), "quota"),
    (429, openai("Rate limit reached for x", "requests", "rate_limit_exceeded"), "rate_limited"),
    (429, openai(MANY_TOKENS, "tokens", "rate_limit_exceeded"), "quota"),
    (400, openai("Your input exceeds the context window.", code="context_length_exceeded"), "context_overflow"),
    (400, openai("max_tokens is too large: 9. This model supports at most 8 completion tokens"), "output_budget"),
    (400, openai("Invalid prompt: it was flagged as violating our usage policy.", code="invalid_prompt"), "refused"),
    (400, openai("No tool output found for function call call_1."), "bad_request"),
    (400, openai("Could not finish the message because max_tokens was reached."), "bad_request"),
    (500, openai("The server had an error", "server_error"), "server"),
    (503, openai("Slow down", "server_error", "slow_down"), "overloaded"),
]
DEEPSEEK = [
    (400, openai(DEEPSEEK_LONG.format(140000, 138000, 2000), code="invalid_request_error"), "context_overflow"),
    (400, openai(DEEPSEEK_LONG.format(138000, 60000, 78000), code="invalid_request_error"), "output_budget"),
    (400, openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"), "output_budget"),
    (400, openai("The `reasoning_content` in the thinking mode must be passed back to the API."), "bad_request"),
    (400, openai("Content Exists Risk"), "refused"),
    (401, openai("Authentication Fails", "authentication_error", "invalid_request_error"), "authentication"),
    (402, openai("Insufficient Balance", "unknown_error", "invalid_request_error"), "quota"),
    (422, openai("Invalid Parameters"), "bad_request"),
    (429, openai("Rate Limit Reached", "rate_limit_error"), "rate_limited"),
    (503, openai("Service is too busy.", "service_unavailable_error"), "overloaded"),
    (None, openai("insufficient_system_resource", "insufficient_system_resource"), "overloaded"),
]
ANTHROPIC = [
    (400, TOO_LONG, "context_overflow"),
    (400, anthropic("invalid_request_error", "max_tokens: 64000 > 32000, which is the maximum allowed"), "budget"),
    (400, anthropic("invalid_request_error", "Your credit balance is too low to access the API."), "quota"),
    (400, anthropic("invalid_request_error", f"You have reached your specified API usage limits: {AGAIN}"), "quota"),
    (400, anthropic("invalid_request_error", "Output blocked by content filtering policy"), "refused"),
    (400, anthropic("invalid_request_error", "messages: text content blocks must be non-empty"), "bad_request"),
    (401, anthropic("authentication_error", "invalid x-api-key"), "authentication"),
    (402, anthropic("billing_error", "There is an issue with billing"), "quota"),
    (403, anthropic("permission_error", "no access"), "authentication"),
    (404, anthropic("not_found_error", "model: x"), "not_found"),
    (413, anthropic("request_too_large", "Request exceeds the maximum size"), "context_overflow"),
    (429, anthropic("rate_limit_error", "This would exceed your rate limit of 40,000 input tokens"), "rate_limited"),
    (500, anthropic("api_error", "Internal server error"), "server"),
    (504, anthropic("timeout_error", "Request timed out"), "server"),
    (529, anthropic("overloaded_error", "Overloaded"), "overloaded"),
    (None, anthropic("overloaded_error", "Overloaded"), "overloaded"),
]
OPENROUTER = [
    (400, openrouter(400, ROUTER_LONG.format(8963, 262144)), "output_budget"),
    (400, openrouter(400, ROUTER_LONG.format(271000, 107)), "context_overflow"),
    (400, openrouter(400, "Provider returned error", raw=json.dumps(TOO_LONG), provider_name="x"), "context_overflow"),
    (400, openrouter(400, "Provider returned error", raw="messages.3: bad"), "bad_request"),
    (401, openrouter(401, "User not found."), "authentication"),
    (402, openrouter(402, "This request requires more credits, or fewer max_tokens."), "quota"),
    (403, openrouter(403, "x requires moderation. Your input was flagged", reasons=["violence"]), "refused"),
    (404, openrouter(404, "No endpoints found that support tool use."), "not_found"),
    (408, openrouter(408, "Request timed out"), "timeout"),
    (429, openrouter(429, "Provider returned error", raw="x is temporarily rate-limited upstream."), "rate_limited"),
    (502, openrouter(502, "Provider returned error", raw="<html>"), "server"),
    (None, openrouter(502, "Upstream error"), "server"),
    (None, openrouter(429, "Upstream error"), "rate_limited"),
    (None, openrouter(400, "Provider returned error", raw=json.dumps(TOO_LONG)), "context_overflow"),
]
KIMI = [
    (400, openai("Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"), "overflow"),
    (400, openai("The request was rejected because it was considered high risk", "content_filter"), "refused"),
    (401, openai("Invalid Authentication", "invalid_authentication_error"), "authentication"),
    (403, openai("Your account is not active, exceeded current quota", "exceeded_current_quota_error"), "quota"),
    (404, openai("Not found the model x or Permission denied", "resource_not_found_error"), "not_found"),
    (
        429,
        openai("The engine is currently overloaded, try again later", "engine_overloaded_error"),
        "overloaded",
    ),
    (429, openai("max RPM: 3, please try again after 1 seconds", "rate_limit_reached_error"), "rate_limited"),
]
QWEN = [
    (400, openai("Access denied, please make sure your account is in good standing.", "Arrearage"), "quota"),
    (400, openai("Range of input length should be [1, 98304]", code="invalid_parameter_error"), "context_overflow"),
    (400, openai("<400> InternalError.Algo: Range of max_tokens should be [1, 8192]"), "output_budget"),
    (400, openai("Input data may contain inappropriate content.", code="data_inspection_failed"), "refused"),
    (400, {"code": "DataInspectionFailed", "message": "x", "request_id": "r"}, "refused"),
    (403, openai("The free tier of the model has been exhausted.", code="AllocationQuota.FreeTierOnly"), "quota"),
    (429, openai("You have exceeded your current request limit", "limit_requests", "limit_requests"), "rate_limited"),
    (503, openai("Too many requests. Your requests are being throttled.", "ServiceUnavailable"), "overloaded"),
    (None, {"code": "Throttling.RateQuota", "message": "Requests throttled", "request_id": "r"}, "rate_limited"),
]
GLM = [
    (400, glm("1261", "Prompt exceeds max length"), "context_overflow"),
    (400, glm("1301", "系统检测到输入或生成内容可能包含不安全或敏感内容"), "refused"),
    (400, glm("1211", "模型不存在"), "not_found"),
    (400, glm("1214", "messages 参数非法"), "bad_request"),
    (401, glm("1002", "Authorization Token非法"), "authentication"),
    (429, glm("1113", "余额不足或无可用资源包,请充值。"), "quota"),
    (429, glm("1302", "您当前使用该API的并发数过高"), "rate_limited"),
    (429, glm("1305", "当前API请求过多"), "overloaded"),
    (429, glm("1308", "已达到 5 小时的使用上限。您的限额将在 2026-08-25 07:41:44 重置。"), "quota"),
    (429, glm("1310", "Weekly/Monthly Limit Exhausted."), "quota"),
    (500, glm("1234", "网络错误"), "server"),
]
GEMINI = [
    (400, gemini(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), "authentication"),
    (400, gemini(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum number (8)."), "overflow"),
    (400, gemini(400, "INVALID_ARGUMENT", "Unknown name"), "bad_request"),
    (403, gemini(403, "PERMISSION_DENIED", "no access"), "authentication"),
    (404, gemini(404, "NOT_FOUND", "models/x is not found"), "not_found"),
    (429, gemini(429, "RESOURCE_EXHAUSTED", QUOTA, quota_failure("RequestsPerMinutePerModel")), "rate_limited"),
    (429, gemini(429, "RESOURCE_EXHAUSTED", QUOTA, quota_failure("RequestsPerDayPerModel-FreeTier")), "quota"),
    (500, gemini(500, "INTERNAL", "An internal error has occurred"), "server"),
    (503, gemini(503, "UNAVAILABLE", "The model is overloaded. Please try again later."), "overloaded"),
    (504, gemini(504, "DEADLINE_EXCEEDED", "Deadline expired"), "server"),
]
VLLM = [
    (400, vllm(DEEPSEEK_LONG.format(140000, 138000, 2000)), "context_overflow"),
    (400, {"error": vllm(VLLM_LONG)}, "context_overflow"),
    (400, {"error": vllm("max_tokens must be at least 1, got -57.")}, "context_overflow"),
    (400, {"error": vllm(VLLM_OUTPUT)}, "output_budget"),
    (400, vllm('"auto" tool choice requires --enable-auto-tool-choice'), "bad_request"),
    (401, {"error": "Unauthorized"}, "authentication"),
    (404, vllm("The model `x` does not exist.", "NotFoundError", 404), "not_found"),
    (500, "Internal Server Error", "server"),
    (None, vllm("EngineCore encountered an issue", "InternalServerError", 500), "server"),
]
LLAMA_CPP = [
    (400, llama(400, "request (9 tokens) exceeds", "exceed_context_size_error", n_ctx=8), "context_overflow"),
    (400, llama(400, "the request exceeds the available context size.", "invalid_request_error"), "context_overflow"),
    (401, llama(401, "Invalid API Key", "authentication_error"), "authentication"),
    (500, llama(500, "Context size has been exceeded.", "server_error"), "context_overflow"),
    (501, llama(501, "This server does not support tools", "not_supported_error"), "bad_request"),
    (503, llama(503, "Loading model", "unavailable_error"), "overloaded"),
]
OLLAMA = [
    (400, ollama("x does not support tools"), "bad_request"),
    (404, ollama('model "x" not found, try pulling it first'), "not_found"),
    (429, ollama("you have reached your session usage limit, please wait or upgrade to continue"), "quota"),
    (500, ollama("model requires more system memory (8 GiB) than is available"), "server"),
    (503, ollama("server busy, please try again. maximum pending requests exceeded"), "overloaded"),
    (None, {"error": "an error was encountered while running the model: CUDA error"}, "server"),
]
PROXIES = [
    (502, "<html><h1>502 Bad Gateway</h1></html>", "server"),
    (504, "upstream request timeout", "server"),
    (413, "<html>Request Entity Too Large</html>", "context_overflow"),
    (520, "error code: 520", "server"),
    (400, openai("litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException"), "context_overflow"),
    (500, openai('OpenAIException - {"code": "context_length_exceeded"}', None), "context_overflow"),
    (400, "Input is too long for requested model.", "context_overflow"),
]
TABLES = {
    "openai": OPENAI,
    "deepseek": DEEPSEEK,
    "anthropic": ANTHROPIC,
    "openrouter": OPENROUTER,
    "kimi": KIMI,
    "qwen": QWEN,
    "glm": GLM,
    "gemini": GEMINI,
    "vllm": VLLM,
    "llama.cpp": LLAMA_CPP,
    "ollama": OLLAMA,
    "proxies": PROXIES,
}
SHORT = {"refused": "content_refused", "overflow": "context_overflow", "budget": "output_budget"}


def names(rows: list) -> list[str]:
    return [f"{row[0]}-{row[1]}-{row[3]}-{number}" for number, row in enumerate(rows)]


ROWS = [(name, status, body, SHORT.get(kind, kind)) for name, rows in TABLES.items() for status, body, kind in rows]


@pytest.mark.parametrize(("provider", "status", "body", "fault"), ROWS, ids=names(ROWS))
def test_B021_B023_B024_B028_what_each_provider_means(provider: str, status: int | None, body: object, fault: str):
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    made = classify(status, {}, body=text, now=NOW)
    assert (made.fault, made.is_retryable) == (fault, fault in RETRYABLE), f"{provider}: {made}"
    assert classify(status, {}, body="\ufeff" + text, now=NOW).fault == fault
    assert f"{fault}: " in str(made)


def test_every_kind_that_a_provider_can_tell_is_in_the_table():
    ours = {"incomplete", "connection", "protocol"}
    assert {fault for *_, fault in ROWS} == set(FAULT_KINDS) - ours


IN_STREAM = [row for row in ROWS if row[1] is None]


@pytest.mark.parametrize(("provider", "status", "body", "fault"), IN_STREAM, ids=names(IN_STREAM))
@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("wire", WIRES)
def test_B021_the_same_inside_a_stream(
    wire: str, after: int, provider: str, status: int | None, body: object, fault: str
):
    begun = stream_of(wire, [AssistantText(text="Hello")])[:after]
    with pytest.raises(ModelError) as caught:
        fold(BY_NAME[wire].new_decoder(), [*begun, json.dumps(body)])
    assert (caught.value.fault, status) == (fault, None), provider
    assert "Hello" not in str(caught.value)


def test_what_a_gateway_relays_is_what_is_told():
    made = classify(429, {}, body=json.dumps(OPENROUTER[9][1]), now=NOW)
    assert "temporarily rate-limited upstream" in str(made)


KEYS = st.sampled_from(
    ["error", "code", "message", "type", "status", "detail", "details", "metadata", "raw", "violations", "quotaId"]
)
LEAVES = st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["x", "429", '{"error":', "[]", ""])
BODIES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=20
)


@given(body=BODIES, status=st.sampled_from([None, 200, 400, 403, 413, 429, 500, 599]))
def test_B021_no_shape_of_an_error_is_too_odd(body: object, status: int | None):
    made = classify(status, {}, body=json.dumps(body), now=NOW)
    assert made.fault in FAULT_KINDS
    assert len(str(made)) < 800
    assert classify_event(body).fault in FAULT_KINDS
