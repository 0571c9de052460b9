"""Addresses: which are fetched from, and that what is shown of them holds no secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xnagent.errors import UsageError
from xnagent.workspaces.addresses import is_address, parse_address, shown_address


@pytest.mark.parametrize(
    ("text", "scheme", "shown"),
    [
        ("https://Example.COM/a/b.git/", "https", "https://example.com/a/b.git"),
        ("HTTPS://u:p@example.com:8443/a", "https", "https://example.com:8443/a"),
        ("http://[::1]:80/a", "http", "http://[::1]:80/a"),
        ("ssh://git@example.com:2222/~me/a", "ssh", "ssh://git@example.com:2222/~me/a"),
        ("git@example.com:a/b.git", "ssh", "git@example.com:a/b.git"),
        ("git@[fe80::1]:a", "ssh", "git@[fe80::1]:a"),
        ("git://example.com/a", "git", "git://example.com/a"),
        ("file:///srv/Some%20where/a.git", "file", "file:///srv/Some%20where/a.git"),
        ("file://localhost/srv/a", "file", "file:///srv/a"),
    ],
)
def test_an_address_has_one_spelling(text, scheme, shown):
    address = parse_address(text)
    assert (address.scheme, address.url) == (scheme, shown)
    assert parse_address(address.text).name == address.name
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "ext::sh -c id",
        "ext::id",
        "fd::7",
        "https::https://example.com/a",
        "ftp://example.com/a",
        "https://",
        "https://example.com",
        "https://-oProxyCommand=id/a",
        "ssh://-oProxyCommand=id/a",
        "ssh://-l@example.com/a",
        "-x@example.com:a",
        "u@-oProxyCommand=id:a",
        "ssh://u:p@example.com/a",
        "git://u@example.com/a",
        "file://elsewhere/a",
        "https://example.com/a?token=x",
        "https://example.com/a\nb",
        "https://exa mple.com/a",
        "https://u:p%0aHost:x@example.com/a",
        "https://example.com:port/a",
    ],
)
def test_what_is_not_fetched_from_is_refused_before_git_sees_it(text):
    assert is_address(text)
    with pytest.raises(UsageError, match=r"^ADDRESS_REFUSED"):
        parse_address(text)


@pytest.mark.parametrize("text", ["repo", "../repo", "/srv/repo", "a:b", "dir/x@y:z", ".", "C/x", "~/a@b"])
def test_a_folder_is_no_address(text):
    assert not is_address(text)


secrets = st.text(
    alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="/?#@%[]:*${}"), min_size=8
)


@given(user=secrets, password=secrets)
def test_b075_a_login_is_in_nothing_that_is_shown(user, password):
    text = f"https://{user}:{password}@example.com/a"
    address = parse_address(text)
    assert address.credentials({}) == (user, password)
    token = parse_address(f"https://{user}@example.com/a")
    assert token.credentials({}) == (user, "")
    told = f"{address!r} {address} {address.text} {address.url} {token!r} {token.text} {shown_address(text)}"
    assert password not in told
    assert user not in told


def test_b075_the_name_of_a_variable_is_recorded_and_its_value_is_not():
    environ = {"GIT_LOGIN": "ann:s%3Aecret", "GIT_LOGIN_B": "pa:ss%20"}
    for login, expected in {
        "${GIT_LOGIN}": ("ann", "s%3Aecret"),
        "${GIT_LOGIN_B}": ("pa", "ss%20"),
        "x-token:${GIT_LOGIN_B}": ("x-token", "pa:ss%20"),
    }.items():
        address = parse_address(f"https://{login}@Example.com/a/")
        assert address.credentials(environ) == expected
        assert address.text == f"https://{login}@example.com/a"
        assert address.url == "https://example.com/a"
        assert parse_address(address.text) == address
        with pytest.raises(UsageError, match=r"^LOGIN_MISSING: GIT_LOGIN"):
            address.credentials({})
    for login in ("${OPENAI_API_KEY}", "x:${HOME}", "${GIT_LOGIN}${HOME}"):
        with pytest.raises(UsageError, match=r"GIT_LOGIN"):
            parse_address(f"https://{login}@example.com/a")
    assert parse_address("https://${GIT_LOGIN}:literal@example.com/a").text == "https://example.com/a"
