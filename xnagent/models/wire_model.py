"""A model behind a wire: encode, exchange, decode. One attempt; who calls it decides about more."""

from __future__ import annotations

from dataclasses import replace

from xnagent.core.spine import Spine
from xnagent.core.spine_events import ManifestRecorded
from xnagent.models.encoder import Encoder
from xnagent.models.gate import Ask, Gate
from xnagent.models.transport import HttpTransport
from xnagent.models.wires import Wire
from xnagent.ports import Body, Reply


class WireModel:
    """Implements `ports.Model`."""

    def __init__(self, transport: HttpTransport, wire: Wire, *, gate: Gate | None = None) -> None:
        self._transport = transport
        self._wire = wire
        self._gate = gate or Gate(places=None)
        self._encoder = Encoder(wire.renderer)

    def encode(self, manifest: ManifestRecorded, spine: Spine) -> Body:
        """The bytes of the request."""
        return self._encoder.encode(manifest, spine)

    async def send(self, body: Body) -> Reply:
        """One attempt with a decoder of its own, when the gate lets it through."""
        decoder = self._wire.new_decoder()
        async with self._gate.turn(Ask(head=b"".join(body.segments[:1]), size_bytes=len(body.content))) as turn:
            first = await self._transport.exchange(self._wire.target, body.content, decoder=decoder, told=turn)
        return replace(decoder.finish(), first_token_seconds=first)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
