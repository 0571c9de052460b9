"""A model behind the Chat Completions wire: encode, exchange, decode. One attempt; who calls it decides about more."""

from __future__ import annotations

from dataclasses import replace

from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.models.chat import ChatEncoder
from xnagent.models.chat_stream import ChatDecoder
from xnagent.models.transport import HttpTransport
from xnagent.ports import Body, Reply

PATH = "/chat/completions"


class Chat:
    """Implements `ports.Model`."""

    def __init__(self, transport: HttpTransport) -> None:
        """Whether reasoning is sent back, the manifest of each request says."""
        self._transport = transport
        self._encoder = ChatEncoder()

    def encode(self, manifest: ManifestRecorded, spine: Spine) -> Body:
        """The bytes of the request."""
        return self._encoder.encode(manifest, spine)

    async def send(self, body: Body) -> Reply:
        """One attempt with a decoder of its own."""
        decoder = ChatDecoder()
        first = await self._transport.exchange(PATH, body.content, decoder=decoder)
        return replace(decoder.finish(), first_token_seconds=first)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
