"""The way to an OpenTelemetry collector: the only module that knows OpenTelemetry, loaded when there is an endpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from xnagent import __version__
from xnagent.export import conventions as names
from xnagent.export.otlp import SCOPE, scope_attributes
from xnagent.export.spans import Kind, Span

KINDS: Final[Mapping[Kind, SpanKind]] = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
CHATTY: Final = ("opentelemetry", "urllib3", "requests")
"""What goes wrong there is told once, by who uses this."""


class Collector:
    """Sends spans to the endpoint that the environment names; each call may take as long as the exporter's timeout."""

    def __init__(self) -> None:
        """Raises ValueError if the environment holds what the exporter does not understand."""
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._exporter: SpanExporter = OTLPSpanExporter()
        self._resource = _resource()
        self._scope = InstrumentationScope(SCOPE, __version__, names.SCHEMA_URL, scope_attributes())

    def send(self, spans: Iterable[Span]) -> bool:
        """Whether the collector took them."""
        made = [self._span(span) for span in spans]
        return not made or self._exporter.export(made) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Give up what is under way."""
        self._exporter.shutdown()

    def _span(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace, span.span),
            parent=None if span.parent is None else _context(span.trace, span.parent),
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(one.name, one.attributes, one.at) for one in span.moments],
            links=[Link(_context(span.trace, link)) for link in span.links],
            kind=KINDS[span.kind],
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start,
            end_time=span.end,
            instrumentation_scope=self._scope,
        )


def _context(trace: str, span: str) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(trace_id=int(trace, 16), span_id=int(span, 16), is_remote=False, trace_flags=flags)


def _resource() -> Resource:
    """Who sends: as the environment says (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`), else xnagent."""
    named = Resource.create({"service.version": __version__})
    is_named = not str(named.attributes["service.name"]).startswith("unknown_service")
    return named if is_named else named.merge(Resource({"service.name": SCOPE}))


def new_collector() -> Collector:
    """One by the environment. Raises ValueError."""
    return Collector()
