"""Secrets taken out of text."""

import base64
import html
import json
import string
import textwrap
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from xnagent.core.masking import Mask, Secret, mask_of

KEY = "sk-ant-api03-Zq8/+xT'r3\"VbN1mK9pLwQ2yHdU7sEoA5cGfJ4iRtXkB6vM0n"
MASK = mask_of([Secret(name="API_KEY", value=KEY)])

FORMS = {
    "as it is": str,
    "json": lambda text: json.dumps(text)[1:-1],
    "json twice": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "json with slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "url": lambda text: quote(text, safe=""),
    "url path": quote,
    "url lower": lambda text: "".join(
        c if c.isalnum() or c in "-._~" else "".join(f"%{b:02x}" for b in c.encode()) for c in text
    ),
    "every byte": lambda text: "".join(f"%{b:02X}" for b in text.encode()),
    "form": quote_plus,
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "hex in pairs": lambda text: text.encode().hex(" "),
    "html": html.escape,
    "one character a line": "\n".join,
    "wrapped": lambda text: "\n".join(textwrap.wrap(text, 7, break_on_hyphens=False)),
}
secret_values = st.text(alphabet=string.ascii_letters + string.digits + "-_/+=.:@!$%'\"\\<&é", min_size=8, max_size=70)


def encoded(text: str, before: bytes, *, url: bool) -> str:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    return encode(before + text.encode()).decode()


def core_of(value: str, shift: int) -> str:
    """The characters of a base64 text that only the value decides."""
    size = len(value.encode())
    return encoded(value, b"\0" * shift, url=False)[-(-8 * shift // 6) : 8 * (shift + size) // 6]


@given(secret_values, st.sampled_from(sorted(FORMS)), st.text(max_size=20), st.text(max_size=20))
@example(KEY, "json", "x", "y")
@settings(max_examples=300)
def test_no_form_of_a_secret_survives(value: str, form: str, before: str, after: str):
    assume(len(set(value)) > 1)
    mask = mask_of([Secret(name="K", value=value)])
    written = FORMS[form](value)
    for text in (f"{before}{written}{after}", f"{before} {written} {after}"):
        assert written not in mask.text(text)
        assert "[secret:K]" in mask.text(text)
        data = text.encode("utf-8", "surrogatepass")
        assert written.encode() not in mask.data(data)
        assert b"[secret:K]" in mask.data(data)


@given(secret_values, st.binary(max_size=5), st.binary(max_size=5), st.booleans(), st.integers(5, 76))
@settings(max_examples=300)
def test_no_base64_of_a_secret_survives_at_any_place_and_width(
    value: str, before: bytes, after: bytes, url: bool, width: int
):
    assume(len(set(value)) > 1)
    mask = mask_of([Secret(name="K", value=value)])
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    whole = encode(before + value.encode() + after).decode()
    core = core_of(value, len(before) % 3)
    core = core.replace("+", "-").replace("/", "_") if url else core
    assert core in whole
    for text in (whole, "\n".join(whole[at : at + width] for at in range(0, len(whole), width))):
        shown = "".join(mask.text(text).split())
        assert core not in shown
        assert "[secret:K]" in shown


@given(st.text(alphabet=string.ascii_letters + " \n\t.,=/+%\\é", max_size=400))
@settings(max_examples=300)
def test_text_without_secrets_is_the_same_object(text: str):
    assert MASK.text(text) is text
    data = text.encode()
    assert MASK.data(data) is data


@given(st.lists(secret_values, min_size=1, max_size=4, unique=True), st.text(max_size=30))
def test_masking_is_deterministic_and_settles(values: list[str], between: str):
    secrets = [Secret(name=f"S{number}", value=value) for number, value in enumerate(values)]
    text = between.join(values)
    once = mask_of(secrets).text(text)
    assert once == mask_of(secrets).text(text)
    assert not any(value in once for value in values)


def test_the_rest_of_a_text_stays_as_it_is():
    assert MASK.text(f"a\n  {KEY}\n\tb {KEY}") == "a\n  [secret:API_KEY]\n\tb [secret:API_KEY]"
    assert MASK.data(b"\xff\x00" + KEY.encode() + b"\x85 \xfe") == b"\xff\x00[secret:API_KEY]\x85 \xfe"


@pytest.mark.parametrize("kept", [slice(0, 16), slice(5, 25), slice(40, None), slice(0, 50)])
def test_a_long_piece_is_masked_like_the_whole(kept: slice):
    """Outputs are cut, lines are clipped: the cut may be inside a secret."""
    assert MASK.text(f"{KEY[kept]}… end") == "[secret:API_KEY]… end"


def test_a_public_beginning_is_no_secret():
    text = "keys begin with sk-ant-api03-"
    assert MASK.text(text) is text


def test_what_is_short_is_never_masked():
    assert mask_of([Secret(name="K", value="short12")]) == Mask()
    text = "short12"
    assert mask_of([Secret(name="K", value="short12")]).text(text) is text


def test_structures_are_masked_throughout():
    assert MASK.value({"a": [KEY, 1, None], KEY: True}) == {
        "a": ["[secret:API_KEY]", 1, None],
        "[secret:API_KEY]": True,
    }


def test_dumps_of_bytes_are_seen():
    data = KEY.encode()
    rows = [data[at : at + 16].hex(" ") for at in range(0, len(data), 16)]
    shown = MASK.text("\n".join(rows))
    assert data.hex()[:32] not in "".join(shown.split())
    assert "[secret:API_KEY]" in shown
