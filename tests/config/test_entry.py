"""Which model answers, and where sessions live."""

import tomllib
from pathlib import Path

import pytest

from xnagent.config import Settings
from xnagent.config.entry import is_loopback, model_entry, shipped_catalog
from xnagent.config.load import Sources, load_settings
from xnagent.config.places import home_folder, shipped, user_file
from xnagent.config.sources import from_assignment
from xnagent.core.pricing import Price
from xnagent.errors import UsageError


def settings(*options: str) -> Settings:
    return load_settings(Sources(environ={"HOME": "/nonexistent"}, options=[from_assignment(text) for text in options]))


def test_the_worker_falls_back_to_the_planner_then_to_the_table():
    both = settings("planner.model.name=deepseek-flash")
    assert model_entry(both, "worker") == model_entry(both, "planner")
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


def test_the_shipped_table_is_whole():
    rows = tomllib.loads(shipped("models.toml").read_text(encoding="utf-8"))["models"]
    assert set(shipped_catalog()) == set(rows)
    assert all(table.base_url and table.window_tokens and table.source for table in shipped_catalog().values())


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
