"""Each wire over HTTP: where it goes, how it shows the key, and that an answer comes back."""

import pytest

from tests.models.speaking import WIRES, call, manifest, said, sealed, spine, stream_of, user
from xnagent.errors import ModelError
from xnagent.models.catalog import ModelEntry, create_model
from xnagent.models.transport import Timeouts
from xnagent.models.wires import encode
from xnagent.ports import Model

pytestmark = pytest.mark.anyio

KEY = "secret-key-1"
PATIENT = Timeouts(connect_seconds=5, idle_seconds=20, progress_seconds=20, total_seconds=20)
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def model_at(wire: str, url: str, key: str | None = KEY) -> Model:
    return create_model(ModelEntry(name="m", wire=wire, base_url=url), key, timeouts=PATIENT)


def events(*data: str) -> bytes:
    return b"".join(b"event: x\ndata: " + one.encode() + b"\n\n" for one in data)


def head_of(request: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    return first.split()[1], {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}


@pytest.mark.parametrize("wire", WIRES)
async def test_M121_a_request_goes_out_and_its_reply_comes_back(wire: str, stream_server):
    reply = [sealed(wire), said("那个 – é 😀"), call("c1", '{"a":1}')]
    server = stream_server(events(*stream_of(wire, reply)))
    model = model_at(wire, server.base_url)
    body = model.encode(manifest(wire), spine(user("Go.")))
    got = await model.send(body)
    await model.aclose()
    assert list(got.items) == reply
    assert got.usage.input_tokens in {10, 100}
    assert got.first_token_seconds is not None
    path, headers = head_of(server.requests[0])
    assert path == PATHS[wire]
    assert server.requests[0].endswith(body.content)
    assert body.content == encode(manifest(wire), [user("Go.")])
    shown = {name: value for name, value in headers.items() if KEY in value}
    assert shown == ({"x-api-key": KEY} if wire == "messages" else {"authorization": f"Bearer {KEY}"})
    assert headers.get("anthropic-version") == ("2023-06-01" if wire == "messages" else None)


@pytest.mark.parametrize("wire", WIRES)
async def test_without_a_key_no_header_shows_one(wire: str, stream_server):
    server = stream_server(events(*stream_of(wire, [said("x")])))
    model = model_at(wire, server.base_url, None)
    await model.send(model.encode(manifest(wire), spine(user("Go."))))
    await model.aclose()
    assert not {"authorization", "x-api-key"} & set(head_of(server.requests[0])[1])


@pytest.mark.parametrize(
    ("wire", "base", "path"),
    [
        ("messages", "", "/v1/messages"),
        ("messages", "/", "/v1/messages"),
        ("messages", "/v1/", "/v1/messages"),
        ("messages", "/anthropic", "/anthropic/v1/messages"),
        ("messages", "/xv1", "/xv1/v1/messages"),
        ("responses", "", "/responses"),
        ("chat", "/chat", "/chat/chat/completions"),
        ("chat", "/v1/", "/v1/chat/completions"),
    ],
)
async def test_a_version_in_the_address_is_not_repeated(wire: str, base: str, path: str, stream_server):
    server = stream_server(events(*stream_of(wire, [said("x")])))
    model = model_at(wire, server.base_url.removesuffix("/v1") + base)
    await model.send(model.encode(manifest(wire), spine(user("Go."))))
    await model.aclose()
    assert head_of(server.requests[0])[0] == path


@pytest.mark.parametrize("wire", WIRES)
async def test_B075_a_key_that_the_provider_repeats_is_masked(wire: str, answer_server):
    body = f'{{"type":"error","error":{{"type":"authentication_error","message":"invalid x-api-key: {KEY}"}}}}'
    model = model_at(wire, answer_server(401, body.encode()).base_url)
    with pytest.raises(ModelError) as caught:
        await model.send(model.encode(manifest(wire), spine(user("Go."))))
    await model.aclose()
    assert caught.value.fault == "authentication"
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("upto", [1, 2, 3])
async def test_B019_a_polite_end_in_the_middle_is_incomplete(wire: str, upto: int, stream_server):
    server = stream_server(events(*stream_of(wire, [said("The fix is to"), call("c1")])[:upto]))
    model = model_at(wire, server.base_url)
    with pytest.raises(ModelError) as caught:
        await model.send(model.encode(manifest(wire), spine(user("Go."))))
    await model.aclose()
    assert caught.value.fault == "incomplete"
    assert caught.value.is_retryable
