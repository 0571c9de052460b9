"""A model behind a wire: encode, exchange, decode. One attempt; who calls it decides about more."""

from __future__ import annotations

from dataclasses import replace

from xnagent.core.lifetime import Used, due_seconds
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
        self._used: dict[str, float] = {}
        """When the newest request of a lineage was sent that was answered."""

    def encode(self, manifest: ManifestRecorded, spine: Spine) -> Body:
        """The bytes of the request."""
        return self._encoder.encode(manifest, spine)

    async def send(self, body: Body) -> Reply:
        """One attempt with a decoder of its own, when the gate lets it through."""
        decoder = self._wire.new_decoder()
        is_first = body.lineage not in self._used
        head, due = b"".join(body.segments[:1]), self._due(body)
        ask = Ask(head=head, size_bytes=len(body.content), is_first=is_first, due=due)
        async with self._gate.turn(ask) as turn:
            sent_at = self._gate.seconds()
            first = await self._transport.exchange(self._wire.target, body.content, decoder=decoder, told=turn)
            reply = replace(decoder.finish(), first_token_seconds=first)
            turn.answered(reply.usage)
        self._used[body.lineage] = sent_at
        return reply

    def _due(self, body: Body) -> float:
        used = Used(at_seconds=self._used.get(body.lineage), lifetime_seconds=self._gate.lifetime_seconds)
        return due_seconds(used, self._gate.seconds())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
