"""Who is let in: by token, by the server's own names, from its own pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.dashboard.gate import Asked, Gate

TOKEN = "made-up-token"
HOST = "127.0.0.1:8421"
OWN = {"host": HOST, "origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
GATE = Gate(token=TOKEN, names=frozenset({"localhost", "127.0.0.1", "my-machine"}))


def verdict(method: str = "GET", *, cookie: str = TOKEN, token: str = "", **headers: str) -> str:
    named = {"host": HOST, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return GATE.verdict(Asked(method=method, headers=named, cookie=cookie, token=token))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8421", "let_in"),
        ("localhost:8421", "let_in"),
        ("LOCALHOST", "let_in"),
        ("[::1]:8421", "let_in"),
        ("10.1.2.3:8421", "let_in"),
        ("my-machine:8421", "let_in"),
        ("evil.example:8421", "wrong_host"),
        ("127.0.0.1.evil.example", "wrong_host"),
        ("localhost.evil.example:8421", "wrong_host"),
        ("localhost:8421@evil.example", "wrong_host"),
        ("", "wrong_host"),
        ("[evil.example]:1", "wrong_host"),
    ],
)
def test_names_that_others_could_let_lead_here_are_refused(host: str, expected: str):
    assert verdict(host=host) == expected


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", {}, "let_in"),
        ("GET", {"sec_fetch_site": "none"}, "let_in"),
        ("GET", {"sec_fetch_site": "same-origin"}, "let_in"),
        ("GET", {"sec_fetch_site": "same-site"}, "wrong_site"),
        ("GET", {"sec_fetch_site": "cross-site"}, "wrong_site"),
        ("GET", {"origin": "http://evil.example"}, "wrong_site"),
        ("GET", {"origin": "null"}, "wrong_site"),
        ("POST", {}, "wrong_site"),
        ("POST", {"origin": f"http://{HOST}"}, "let_in"),
        ("POST", {"origin": f"http://{HOST}", "sec_fetch_site": "cross-site"}, "wrong_site"),
        ("POST", {"origin": "http://127.0.0.1:3000"}, "wrong_site"),
        ("POST", {"origin": f"https://{HOST}"}, "wrong_site"),
        ("POST", {"origin": "null"}, "wrong_site"),
        ("DELETE", {}, "wrong_site"),
    ],
)
def test_only_pages_of_the_server_may_ask_with_its_cookie(method: str, headers: dict[str, str], expected: str):
    assert verdict(method, **headers) == expected


def test_a_token_is_taken_from_an_address_once_from_a_cookie_or_from_a_script():
    assert verdict(cookie="", token=TOKEN, sec_fetch_site="cross-site") == "welcome"
    assert verdict("POST", cookie="", token=TOKEN, origin=f"http://{HOST}") == "no_token"
    assert verdict(cookie="") == "no_token"
    assert verdict(cookie="other", token="other") == "no_token"
    assert verdict(cookie="", authorization=f"Bearer {TOKEN}") == "let_in"
    assert verdict("POST", cookie="", authorization=f"bearer {TOKEN}") == "let_in"
    assert verdict("POST", cookie="", authorization=f"Bearer {TOKEN}", origin="http://evil.example") == "wrong_site"
    assert verdict(cookie="", authorization=f"Basic {TOKEN}") == "no_token"


@given(given=st.text(), host=st.text(max_size=40))
def test_nothing_but_the_token_opens_it_whatever_is_sent(given: str, host: str):
    assert given == TOKEN or verdict(cookie=given, token=given, authorization=f"Bearer {given}") == "no_token"
    assert verdict(cookie=given, host=host) in {"no_token", "wrong_host"} or given == TOKEN
