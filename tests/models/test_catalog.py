"""From a row of the table to a model."""

import tomllib
from pathlib import Path

import pytest

from xnagent.config import Settings
from xnagent.config.entry import model_entry
from xnagent.errors import UsageError
from xnagent.models.catalog import WIRES, ModelEntry, create_model
from xnagent.models.wire_model import WireModel

TABLE = tomllib.loads((Path(__file__).parents[2] / "configs" / "models.toml").read_text(encoding="utf-8"))["models"]


@pytest.mark.parametrize("wire", WIRES)
def test_M121_the_wire_is_chosen_by_name(wire: str):
    assert isinstance(create_model(ModelEntry(name="m", wire=wire, base_url="http://127.0.0.1:1/v1"), None), WireModel)


@pytest.mark.parametrize("wire", ["x", "", "Chat", "response"])
def test_other_wires_are_refused_with_those_that_are_spoken(wire: str):
    with pytest.raises(UsageError, match=f"'{wire}'.*speaks chat, responses, messages"):
        create_model(ModelEntry(name="m", wire=wire, base_url="http://127.0.0.1:1/v1"), None)


def test_a_model_without_an_address_is_refused():
    with pytest.raises(UsageError, match="--base-url"):
        create_model(ModelEntry(name="m"), None)


@pytest.mark.parametrize("name", TABLE)
def test_each_row_of_the_table_makes_a_model(name: str):
    settings = Settings.model_validate({"planner": {"model": {"name": name, "base_url": "http://127.0.0.1:1/v1"}}})
    entry = model_entry(settings, "planner")
    assert create_model(entry, "k")
    assert entry.source
    assert entry.date
    assert entry.max_output_tokens < entry.window_tokens / 2
    assert entry.price is None or entry.price.cached_usd < entry.price.input_usd < entry.price.output_usd


def test_the_demo_has_prices_that_are_marked_as_fictitious():
    assert TABLE["scripted"]["price"] == {"input_usd": 1.0, "cached_usd": 0.1, "output_usd": 4.0}
    assert "fictitious" in TABLE["scripted"]["source"]
