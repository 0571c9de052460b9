"""Spans as OTLP JSON, which collectors read from files and over HTTP alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from xnagent import __version__
from xnagent.core.masking import Mask
from xnagent.core.text import Json, clean
from xnagent.export import conventions as names
from xnagent.export.spans import Moment, Span, Value

SCOPE: Final = "xnagent"
KINDS: Final = {"internal": 1, "client": 3}
ERROR: Final = 2


def document(spans: Iterable[Span], *, service: str = SCOPE) -> dict[str, Json]:
    """The spans of one session as one export request."""
    resource: Mapping[str, Value] = {"service.name": service, "service.version": __version__}
    scope: Json = {"name": SCOPE, "version": __version__, "attributes": _attributes(scope_attributes())}
    listed: list[Json] = [_span(span) for span in spans]
    scoped: Json = {"scope": scope, "spans": listed, "schemaUrl": names.SCHEMA_URL}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scoped]}]}


def scope_attributes() -> dict[str, Value]:
    """By which conventions the names are."""
    return {"gen_ai.semconv.version": names.VERSION}


def masked(span: Span, mask: Mask) -> Span:
    """The span without secrets that the mask knows, and without what no file can hold."""
    return Span(
        name=_text(span.name, mask),
        trace=span.trace,
        span=span.span,
        parent=span.parent,
        kind=span.kind,
        start=span.start,
        end=span.end,
        attributes=_masked(span.attributes, mask),
        moments=tuple(
            Moment(name=one.name, at=one.at, attributes=_masked(one.attributes, mask)) for one in span.moments
        ),
        links=span.links,
        error=None if span.error is None else _text(span.error, mask),
    )


def _masked(attributes: Mapping[str, Value], mask: Mask) -> dict[str, Value]:
    return {name: _text(value, mask) if isinstance(value, str) else value for name, value in attributes.items()}


def _text(text: str, mask: Mask) -> str:
    return mask.text(clean(text))


def _span(span: Span) -> Json:
    made: dict[str, Json] = {
        "traceId": span.trace,
        "spanId": span.span,
        **({} if span.parent is None else {"parentSpanId": span.parent}),
        "name": span.name,
        "kind": KINDS[span.kind],
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
    }
    if span.moments:
        made["events"] = [
            {"timeUnixNano": str(one.at), "name": one.name, "attributes": _attributes(one.attributes)}
            for one in span.moments
        ]
    if span.links:
        made["links"] = [{"traceId": span.trace, "spanId": link} for link in span.links]
    if span.error is not None:
        made["status"] = {"code": ERROR, "message": span.error}
    return made


def _attributes(attributes: Mapping[str, Value]) -> list[Json]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Value) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [_value(one) for one in value]}}
