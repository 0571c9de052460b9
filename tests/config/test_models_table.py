"""What a row of the table of models may say, what becomes of it, and what is said about a bad one."""

from pathlib import Path

import pytest

from xnagent.config import Settings
from xnagent.config.entry import model_entry, shipped_catalog
from xnagent.config.load import Sources, load_settings
from xnagent.config.sources import from_assignment
from xnagent.core.caching import CacheRule
from xnagent.core.pricing import OffPeak, Price, Tier
from xnagent.errors import UsageError
from xnagent.models.catalog import ModelEntry

NOBODY = {"HOME": "/nonexistent"}
WHOLE = """
[models."mine-2.0"]
wire = "messages"
base_url = "https://models.example.invalid"
window_tokens = 500_000
max_output_tokens = 9_000
cache_lifetime_seconds = 200
cache_long_lifetime_seconds = 2_000
cache_minimum_tokens = 700
cache_block_tokens = 32
cache_whole_requests = true
render_order = "system-tools"
source = "me"
date = "2026-11-30"
[models."mine-2.0".price]
input_usd = 4
cached_usd = 0.4
cache_write_usd = 5
cache_write_long_usd = 8
output_usd = 20
off_peak_share = 0.25
peak_utc = ["01:00-04:30", "22:00-24:00"]
peak_days = "weekdays"
tiers = [{ above_tokens = 200_000, input_usd = 8, output_usd = 30 }]
"""


def settings_of(tmp_path: Path, text: str, *options: str) -> Settings:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    return load_settings(Sources(environ=NOBODY, files=[file], options=[from_assignment(one) for one in options]))


def entry(*options: str, role: str = "planner") -> ModelEntry:
    made = load_settings(Sources(environ=NOBODY, options=[from_assignment(one) for one in options]))
    return model_entry(made, role)


def test_a_users_row_may_say_all_of_it(tmp_path: Path):
    found = model_entry(settings_of(tmp_path, WHOLE, "planner.model.name=mine-2.0"), "planner")
    assert found.price == Price(
        input_usd=4,
        cached_usd=0.4,
        cache_write_usd=5,
        cache_write_long_usd=8,
        output_usd=20,
        tiers=(Tier(above_tokens=200_000, price=Price(input_usd=8, cached_usd=8, output_usd=30)),),
        off_peak=OffPeak(share=0.25, peaks=((60, 270), (1_320, 1_440)), has_weekends=False),
    )
    assert found.cache == CacheRule(
        lifetime_seconds=200,
        long_lifetime_seconds=2_000,
        minimum_tokens=700,
        block_tokens=32,
        has_whole_requests=True,
        order="system-tools",
    )


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("input_usd = 4\n", "input_usd = -4\n", "price.input_usd"),
        ("input_usd = 4\n", "", "price.input_usd"),
        ("above_tokens = 200_000,", "", "price.tiers"),
        ("above_tokens = 200_000", "above_tokens = 0", "price.tiers"),
        ("above_tokens = 200_000", "over_tokens = 200_000", "price.tiers"),
        ("04:30", "04:60", "price.peak_utc"),
        ("24:00", "24:01", "price.peak_utc"),
        ("off_peak_share = 0.25\n", "", "price"),
        ("off_peak_share = 0.25", "off_peak_share = 2", "price.off_peak_share"),
        ("cache_block_tokens = 32", 'cache_block_tokens = "many"', "cache_block_tokens"),
        ('"system-tools"', '"tools-last"', "render_order"),
        ("cache_minimum_tokens", "cache_minimal_tokens", "cache_minimal_tokens"),
        ('wire = "messages"', 'wire = "telepathy"', "wire"),
    ],
)
def test_a_bad_row_is_one_clear_error_with_file_model_and_key(tmp_path: Path, old: str, new: str, key: str):
    assert old in WHOLE
    with pytest.raises(UsageError) as caught:
        settings_of(tmp_path, WHOLE.replace(old, new, 1))
    text = str(caught.value)
    assert "\n" not in text
    assert str(tmp_path / "mine.toml") in text
    assert f'models."mine-2.0".{key}' in text or f"models.mine-2.0.{key}" in text


@pytest.mark.parametrize(
    ("options", "planner", "worker"),
    [
        ((), "auto", "5m"),
        (("planner.model.cache_ttl=1h",), "1h", "5m"),
        (("planner.model.cache_ttl=5m",), "5m", "5m"),
        (("worker.model.cache_ttl=auto",), "auto", "auto"),
        (("models.claude-opus-5.options.cache_ttl=1h",), "1h", "1h"),
        (("models.claude-opus-5.options.cache_ttl=1h", "planner.model.cache_ttl=auto"), "auto", "1h"),
    ],
)
def test_each_role_has_a_lifetime_of_its_own(options: tuple[str, ...], planner: str, worker: str):
    made = ("planner.model.name=claude-opus-5", *options)
    entries = [entry(*made, role=role) for role in ("planner", "worker")]
    assert [found.lifetime for found in entries] == [planner, worker]
    assert all("cache_ttl" not in found.options for found in entries)


def test_another_lifetime_is_refused():
    with pytest.raises(UsageError, match=r'planner\.model\.cache_ttl".*2h'):
        entry("planner.model.name=claude-opus-5", "planner.model.cache_ttl=2h")


def test_caches_can_still_be_left_to_the_endpoint(tmp_path: Path):
    row = '[models.claude-opus-5]\noptions = { cache_ttl = "none" }\n'
    found = model_entry(settings_of(tmp_path, row, "planner.model.name=claude-opus-5"), "planner")
    assert found.options == {"cache_ttl": "none"}


def test_an_unknown_model_has_what_its_wire_promises_and_nothing_else():
    mine = ("planner.model.name=mine", "planner.model.base_url=http://box:8000/v1")
    assert entry(*mine).cache == CacheRule()
    assert entry(*mine, "planner.model.wire=messages").cache == CacheRule(
        lifetime_seconds=300.0, long_lifetime_seconds=3_600.0, order="tools-system"
    )


@pytest.mark.parametrize("name", shipped_catalog())
def test_C8_C10_the_prices_of_a_row_are_in_order(name: str):
    price = entry(f"planner.model.name={name}").price
    for one in () if price is None else (price, *(tier.price for tier in price.tiers)):
        short, long = one.cache_write_usd or one.input_usd, one.cache_write_long_usd
        assert one.cached_usd <= one.input_usd <= short <= (long or short)
        assert one.input_usd <= one.output_usd
    above = [tier.above_tokens for tier in price.tiers] if price else []
    assert above == sorted(set(above))


def test_C10_rows_say_what_their_provider_does():
    rows = {name: entry(f"planner.model.name={name}") for name in shipped_catalog()}
    for name, row in rows.items():
        is_newer = name.startswith(("gpt-6", "gpt-5.6"))
        assert (row.options.get("cache_breakpoint") is True) is is_newer
        assert row.cache.has_whole_requests is name.startswith("deepseek")
        assert (row.cache.long_lifetime_seconds is not None) is name.startswith("claude")
        if name.startswith("claude"):
            price = row.price
            assert price is not None
            assert price.cache_write_long_usd == pytest.approx(2 * price.input_usd)
            assert price.cache_write_usd == pytest.approx(1.25 * price.input_usd)
        if is_newer:
            assert row.price is not None
            assert [tier.above_tokens for tier in row.price.tiers] == [272_000]
            assert row.price.tiers[0].price.input_usd == pytest.approx(2 * row.price.input_usd)
    assert rows["gpt-5"].cache == CacheRule(lifetime_seconds=300, minimum_tokens=1_024, block_tokens=128)
