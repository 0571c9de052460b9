"""Which model answers, and where sessions live."""

import json
import tomllib
from dataclasses import replace
from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from xnagent.app.crew import make_manifest
from xnagent.config import Settings
from xnagent.config.entry import is_loopback, model_chain, model_entry, model_names, shipped_catalog
from xnagent.config.load import Sources, load_settings
from xnagent.config.places import home_folder, shipped, user_file
from xnagent.config.sources import from_assignment
from xnagent.core.ids import PLANNER
from xnagent.core.items import UserText
from xnagent.core.pricing import Price
from xnagent.errors import UsageError
from xnagent.models.wires import encode


def settings(*options: str) -> Settings:
    return load_settings(Sources(environ={"HOME": "/nonexistent"}, options=[from_assignment(text) for text in options]))


def test_the_worker_falls_back_to_the_planner_then_to_the_table():
    both = settings("planner.model.name=deepseek-flash")
    assert model_entry(both, "worker") == replace(model_entry(both, "planner"), lifetime="5m")
    mixed = settings("planner.model.name=deepseek-flash", "worker.model.name=gpt-5-mini", "planner.model.window=9000")
    planner, worker = model_entry(mixed, "planner"), model_entry(mixed, "worker")
    assert (planner.api_key_env, worker.api_key_env) == ("DEEPSEEK_API_KEY", "OPENAI_API_KEY")
    assert (planner.window_tokens, worker.window_tokens) == (9000, 9000)
    assert model_entry(mixed, "worker", name="kimi-k3").api_key_env == "MOONSHOT_API_KEY"


def test_an_unknown_model_works_with_stated_assumptions():
    entry = model_entry(settings("planner.model.name=mine", "planner.model.base_url=http://box:8000/v1"), "planner")
    assert (entry.wire, entry.window_tokens, entry.max_output_tokens) == ("chat", 128_000, 8_192)
    assert (entry.price, entry.api_key_env) == (None, "")
    for wrong in ((), ("planner.model.name=mine",)):
        with pytest.raises(UsageError):
            model_entry(settings(*wrong), "planner")


def test_a_key_for_the_provider_does_not_go_to_this_machine_unasked():
    known = ("planner.model.name=deepseek-flash", "planner.model.base_url=http://127.0.0.1:8000/v1")
    assert model_entry(settings(*known), "planner").api_key_env == ""
    assert model_entry(settings(*known, "planner.model.api_key_env=MINE"), "planner").api_key_env == "MINE"
    remote = ("planner.model.name=deepseek-flash", "planner.model.base_url=https://proxy.example.invalid/v1")
    assert model_entry(settings(*remote), "planner").api_key_env == "DEEPSEEK_API_KEY"


def test_the_users_table_changes_what_it_names():
    entry = model_entry(
        settings(
            "planner.model.name=deepseek-flash",
            "models.deepseek-flash.price.input_usd=2",
            "models.deepseek-flash.price.output_usd=4",
            "planner.model.temperature=0.5",
        ),
        "planner",
    )
    assert entry.price == Price(input_usd=2, cached_usd=2, output_usd=4)
    assert (entry.base_url, entry.options["temperature"]) == ("https://api.deepseek.com", 0.5)


def test_the_slots_of_a_server_of_ones_own_are_an_option_that_is_not_sent():
    own = ("planner.model.name=mine", "planner.model.base_url=http://127.0.0.1:8080/v1", "models.mine.slots=3")
    entry = model_entry(settings(*own), "planner")
    assert entry.options == {"slots": 3}
    sent = json.loads(encode(make_manifest("planner", entry, definitions="[]"), [], agent=PLANNER))
    assert sent["id_slot"] == 0
    assert "slots" not in sent
    assert not any(table.slots for table in shipped_catalog().values())


def test_slots_are_refused_where_they_cannot_be_asked_for():
    own = ("planner.model.name=mine", "planner.model.base_url=http://127.0.0.1:8080/v1", "models.mine.slots=3")
    with pytest.raises(UsageError, match=r'models\."mine"\.slots'):
        model_entry(settings(*own, "planner.model.wire=messages"), "planner")
    with pytest.raises(UsageError, match="greater than or equal to 1"):
        settings("models.mine.slots=0")


def test_a_fallback_has_the_wire_address_and_key_of_its_own_row():
    """All that the role says is about its first model, and about one that no row places."""
    chain = model_chain(
        settings(
            "planner.model.name=mine",
            "planner.model.base_url=http://box:8000/v1",
            "planner.model.api_key_env=MINE",
            "planner.model.window=9000",
            "planner.model.temperature=0.5",
            'planner.model.fallback=["claude-opus-5", "small"]',
        ),
        "planner",
    )
    assert [entry.name for entry in chain] == ["mine", "claude-opus-5", "small"]
    assert [entry.wire for entry in chain] == ["chat", "messages", "chat"]
    assert [entry.api_key_env for entry in chain] == ["MINE", "ANTHROPIC_API_KEY", "MINE"]
    assert [entry.base_url for entry in chain[::2]] == ["http://box:8000/v1"] * 2
    assert chain[1].window_tokens > 9000 == chain[0].window_tokens == chain[2].window_tokens
    assert [entry.options.get("temperature") for entry in chain] == [0.5, None, 0.5]


def test_the_worker_has_the_planners_fallbacks_but_not_itself():
    listed = ("planner.model.name=kimi-k3", 'planner.model.fallback=["deepseek-flash", "gpt-5-mini"]')
    both = settings(*listed, "worker.model.name=deepseek-flash")
    assert model_names(both, "worker") == ("deepseek-flash", "gpt-5-mini")
    assert [entry.name for entry in model_chain(both, "worker")] == ["deepseek-flash", "gpt-5-mini"]
    assert model_names(both, "worker", name="gpt-5-mini") == ("gpt-5-mini", "deepseek-flash")
    none = settings(*listed, "worker.model.fallback=[]")
    assert (model_names(none, "worker"), model_names(none, "planner")[1:]) == (
        ("kimi-k3",),
        ("deepseek-flash", "gpt-5-mini"),
    )


def test_a_fallback_that_nobody_places_is_refused():
    with pytest.raises(UsageError, match=r'\[models."nowhere"\]'):
        model_chain(settings("planner.model.name=kimi-k3", "planner.model.fallback=nowhere"), "planner")


def test_the_shipped_table_is_whole():
    rows = tomllib.loads(shipped("models.toml").read_text(encoding="utf-8"))["models"]
    assert set(shipped_catalog()) == set(rows)
    assert all(table.base_url and table.window_tokens and table.source for table in shipped_catalog().values())


WIRE_OPTIONS = {
    "chat": {"max_tokens_name", "reasoning_effort", "cache_breakpoint"},
    "responses": {"cache_breakpoint"},
    "messages": set(),
}


@pytest.mark.parametrize("name", shipped_catalog())
def test_M121_each_row_makes_an_entry_and_a_manifest_on_its_wire(name: str):
    entry = model_entry(settings(f"planner.model.name={name}"), "planner")
    manifest = make_manifest("planner", entry, definitions="[]")
    assert (manifest.model, manifest.wire) == (name, entry.wire)
    assert 0 < manifest.max_output_tokens < manifest.window_tokens / 2
    assert json.loads(encode(manifest, [UserText(text="Go.", origin="user")]))["model"] == name
    assert entry.source
    assert date.fromisoformat(entry.date)


@pytest.mark.parametrize("name", shipped_catalog())
def test_M121_the_address_and_the_options_of_each_row_fit_its_wire(name: str):
    entry = model_entry(settings(f"planner.model.name={name}"), "planner")
    url = urlsplit(entry.base_url)
    # The path of the Messages wire begins with the version itself; those of the others follow it.
    assert (entry.wire == "messages") is (url.hostname == "api.anthropic.com")
    assert not entry.base_url.endswith("/")
    assert not (entry.wire == "messages" and url.path)
    assert set(entry.options) <= WIRE_OPTIONS[entry.wire]
    assert url.scheme == ("http" if is_loopback(entry.base_url) else "https")
    assert (entry.api_key_env == "") is is_loopback(entry.base_url)


def test_a_server_on_this_machine_has_no_price_and_every_wire_has_a_row():
    rows = shipped_catalog()
    local = [name for name, row in rows.items() if name != "scripted" and is_loopback(row.base_url or "")]
    assert len(local) == 3
    assert all(rows[name].price is None for name in local)
    assert {row.wire for row in rows.values()} == {"chat", "responses", "messages"}
    assert len(rows) >= 25


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://[::1]/", True),
        ("http://localhost", True),
        ("http://10.0.0.1", False),
        ("https://localhost.example.com", False),
    ],
)
def test_what_is_on_this_machine(url: str, wanted: bool):
    assert is_loopback(url) is wanted


@pytest.mark.parametrize(
    ("environ", "option", "wanted"),
    [
        ({"HOME": "/h"}, None, "/h/.local/state/xnagent"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/s"}, None, "/s/xnagent"),
        ({"HOME": "/h", "XDG_STATE_HOME": "s"}, None, "/h/.local/state/xnagent"),
        ({"HOME": "/h", "XNAGENT_HOME": "/x"}, None, "/x"),
        ({"HOME": "/h", "XNAGENT_HOME": "~/x"}, None, "/h/x"),
        ({"HOME": "/h", "XNAGENT_HOME": "/x"}, "/o", "/o"),
    ],
)
def test_where_sessions_live(environ: dict[str, str], option: str | None, wanted: str):
    assert home_folder(environ, option) == Path(wanted)


def test_places_without_a_home():
    assert user_file({}).is_absolute()
    assert user_file({"HOME": "relative"}).is_absolute()
    assert home_folder({}, "here").is_absolute()
    with pytest.raises(UsageError):
        home_folder({}, "")
