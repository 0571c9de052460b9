"""What a user may set. Values only; `load.py` finds them, `entry.py` completes a model from the table of known ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from xnagent.config.hooks import HookTable
from xnagent.config.mcp import McpSettings
from xnagent.config.project import ProjectSettings, SkillSettings
from xnagent.config.section import Name, Number, Seconds, Section, Url, Variable
from xnagent.core.caching import RenderOrder
from xnagent.core.lifetime import Lifetime
from xnagent.core.limits import Limits
from xnagent.core.permissions import Rules, check_examples, parse_allow_rule, parse_rule
from xnagent.core.rebase import RebasePolicy
from xnagent.core.retry import RetryPolicy

Wire = Literal["chat", "responses", "messages"]
PrefixMode = Literal["off", "warn", "strict"]


def _check_store_url(url: str) -> str:
    if url and urlsplit(url).scheme not in {"postgresql", "postgres"}:
        raise ValueError("an address of a store begins with postgresql://; leave it out to keep sessions as files")
    return url


def _check_planners(strategy: str) -> str:
    if strategy != "rebase":
        raise ValueError(
            "the Planner's spine has only rebase, from stored state; worker.context.strategy is the Workers'"
        )
    return strategy


Count: TypeAlias = Annotated[int, Number, Field(ge=1)]
"""1, 2, 3…"""
Processors: TypeAlias = Annotated[float, Number, Field(ge=0.01, le=1_000_000)]
Tokens: TypeAlias = Annotated[int, Number, Field(ge=0)]
Amount: TypeAlias = Annotated[float, Number, Field(ge=0, allow_inf_nan=False)]
"""Money, or another number that may be 0."""
Share: TypeAlias = Annotated[float, Number, Field(gt=0, lt=1, allow_inf_nan=False)]
Gain: TypeAlias = Annotated[float, Number, Field(ge=0, lt=1, allow_inf_nan=False)]
Span: TypeAlias = Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00)$")]
"""Hours of a day: `06:00-10:00`."""
StoreUrl: TypeAlias = Annotated[str, AfterValidator(_check_store_url)]


class ModelSettings(Section):
    """Which model answers a role; None: the Planner's, then the table's, then an assumption (`model_entry`)."""

    name: Name | None = None
    wire: Wire | None = None
    base_url: Url | None = None
    api_key_env: Variable | None = None
    """Name of the environment variable that holds the key; the key itself is no setting."""
    window: Count | None = None
    """Tokens of input and output together."""
    max_output_tokens: Count | None = None
    temperature: Amount | None = None
    cache_ttl: Lifetime | None = None
    """How long a provider's cache is to keep what was sent, where it can be told; None: the Planner's is `auto`, a
    Worker's `5m`."""
    fallback: tuple[Name, ...] | None = None
    """Models that take its place, in this order, when its provider fails for good."""

    @model_validator(mode="after")
    def _check_fallback(self) -> Self:
        names = self.fallback or ()
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f'fallback names "{twice}" twice; name each model once')
        if self.name in names:
            raise ValueError(f'fallback names "{self.name}", the model that it stands in for; leave it out')
        return self


class ContextSettings(Section):
    """What becomes of a Worker's history when it gets long."""

    strategy: Literal["rebase", "summary", "none"] = "rebase"


class PlannerContextSettings(Section):
    """The same for the Planner, where there is nothing to choose."""

    strategy: Annotated[str, AfterValidator(_check_planners)] = "rebase"


class RoleSettings(Section):
    """What both roles have."""

    model: ModelSettings = ModelSettings()


class PlannerSettings(RoleSettings):
    """The Planner."""

    context: PlannerContextSettings = PlannerContextSettings()


class WorkerSettings(RoleSettings):
    """The Workers."""

    context: ContextSettings = ContextSettings()


class SpineSettings(Section):
    """When a spine is rebased."""

    policy: Literal["economic", "threshold"] = "economic"
    soft_share: Share = 0.6
    hard_share: Share = 0.9
    min_gain_share: Gain = 0.2
    tail_share: Gain = 0.05
    least_tail_tokens: Tokens = 3_000
    """Where the share is less, a tail may have so many tokens, or a quarter of the usable window."""
    tail_tokens: Count = 8_000
    """No tail is longer, however large the window is."""
    reserve_tokens: Tokens = 2_000
    """A Worker whose history fits no more is asked for its hand-in while so much room is left."""
    warn_shares: tuple[Share, ...] = (0.5, 0.75, 0.9)
    """Levels of the usable window that the log tells when a request reaches them."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.soft_share > self.hard_share:
            raise ValueError("soft_share must not be above hard_share")
        return self

    def to_policy(self) -> RebasePolicy:
        """As the core takes it."""
        return RebasePolicy(**self.model_dump())


class LimitSettings(Section):
    """How much a session may use; None: no limit."""

    usd: Amount | None = None
    tokens: Count | None = None
    steps: Count | None = 1_000
    runs: Count | None = 100
    deadline_seconds: Seconds | None = 14_400.0
    run_steps: Count = 150

    def to_limits(self) -> Limits:
        """As the core takes it."""
        return Limits(**self.model_dump())


class RetrySettings(Section):
    """How often and how long a request is tried again."""

    max_attempts: Count = 6
    first_wait_seconds: Seconds = 1.0
    max_wait_seconds: Seconds = 60.0
    max_total_seconds: Amount = 600.0

    def to_policy(self) -> RetryPolicy:
        """As the core takes it."""
        return RetryPolicy(**self.model_dump())


class TimeoutSettings(Section):
    """How long an attempt may take: to connect, between bytes, between signs of progress, as a whole."""

    connect_seconds: Seconds = 15.0
    idle_seconds: Seconds = 120.0
    progress_seconds: Seconds = 300.0
    total_seconds: Seconds = 1_200.0


class SandboxSettings(Section):
    """What a Worker's commands may reach."""

    mode: Literal["required", "auto", "external", "off"] = "required"
    """`external`: whoever starts xnagent has boxed it already; `off`: commands may do what the user may."""
    network: Literal["on", "off"] | None = None
    """None: off in a box."""
    memory_bytes: Count | None = None
    """Of all processes of a run together; None: half of the machine's."""
    processes: Count | None = None
    """Of a run; None: 512."""
    processors: Processors | None = None
    """That a run may use at once, such as 1.5, where control groups can be made; None: all."""
    cpu_seconds: Count | None = None
    """Processor time of a single process; None: 3,600."""
    open_files: Count | None = None
    """Of a single process; None: 4,096."""
    disk_bytes: Count | None = None
    """By how much a run may fill the disk; None: 8 GiB."""
    unix_sockets: bool = False
    """Whether commands may talk to services by sockets in the file system, such as a database they start."""
    debug: bool = False
    """Whether commands may use debuggers on each other."""


def _as_table(value: object) -> object:
    return {"rule": value} if isinstance(value, str) else value


class RuleTable(Section):
    """A permission rule; what it must and must not match is tried when it is loaded."""

    rule: Name
    match: tuple[Name, ...] = ()
    """Commands, or paths, that it must match."""
    not_match: tuple[Name, ...] = ()


RuleEntry: TypeAlias = Annotated[RuleTable, BeforeValidator(_as_table)]
"""`"Bash(git push *)"`, or a table with examples."""


class PermissionSettings(Section):
    """Rules on tools and commands (docs/permissions.md)."""

    allow: tuple[RuleEntry, ...] = ()
    """With allow rules for a tool, nothing else of that tool is allowed."""
    narrow: tuple[RuleEntry, ...] = ()
    """A repository's own allow rules, beside the user's: what they do not match is denied too."""
    deny: tuple[RuleEntry, ...] = ()
    max_denials: Count | None = None
    """So many denied calls end the session."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        self.to_rules()
        for entry in (*self.allow, *self.narrow, *self.deny):
            rule, is_deny = parse_rule(entry.rule), entry in self.deny
            check_examples(rule, match=entry.match, not_match=entry.not_match, is_deny=is_deny)
        return self

    def to_rules(self) -> Rules:
        """As the core takes them."""
        return Rules(
            allow=tuple(parse_allow_rule(entry.rule) for entry in self.allow),
            narrow=tuple(parse_allow_rule(entry.rule) for entry in self.narrow),
            deny=tuple(parse_rule(entry.rule) for entry in self.deny),
        )


class SecretSettings(Section):
    """What must not be shown to models or stored (docs/secrets.md)."""

    env: tuple[Variable, ...] = ()
    """Further environment variables whose values are masked, whatever they look like."""
    files: Literal["withhold", "keep"] = "withhold"
    """`withhold`: no patch gets a file that holds such a value, unless the commit before it had it."""


class WorkspaceSettings(Section):
    """What the log keeps of trees, and what else becomes of the result."""

    save: Literal["auto", "always", "off"] = "auto"
    """Trees of runs under way go into the log after each step that changed them. `auto`: where the session may go on at
    another machine, because its repository was fetched by its address or its store is shared."""
    save_bytes: Count = 32 * 1024 * 1024
    """No patch in the log is larger: neither that of a step nor that of the uncommitted work a session began from."""
    bundles: Name | None = None
    """A folder in which each result becomes a file `SESSION.bundle` for `git fetch`."""


class StoreSettings(Section):
    """Where sessions are kept: a matter of the host, so it is neither stored with a session nor taken from one."""

    url: StoreUrl = Field(default="", repr=False)
    """`postgresql://…`; empty: files in the home folder. May hold a password."""
    lease_seconds: Seconds = 30.0
    """A database only: how long a process that says nothing is taken to be alive. Longer than any pause you expect."""


class PriceFields(Section):
    """Dollars for a million tokens, of one kind each."""

    input_usd: Amount
    cached_usd: Amount | None = None
    """None: as any other input."""
    output_usd: Amount
    cache_write_usd: Amount | None = None
    cache_write_long_usd: Amount | None = None
    """Written for the longer of two lifetimes."""


class TierTable(PriceFields):
    """What a request costs, all of its tokens, whose input is longer."""

    above_tokens: Count


class PriceTable(PriceFields):
    """Dollars for a million tokens."""

    tiers: tuple[TierTable, ...] = ()
    off_peak_share: Share | None = None
    """What share of all that is charged outside the peak hours."""
    peak_utc: tuple[Span, ...] = ()
    """The peak hours."""
    peak_days: Literal["daily", "weekdays"] = "daily"

    @model_validator(mode="after")
    def _check_peak(self) -> Self:
        if (self.off_peak_share is None) != (not self.peak_utc):
            raise ValueError("off_peak_share and peak_utc need each other")
        return self


class ModelTable(Section):
    """What is known about one model (`[models."name"]`)."""

    wire: Wire | None = None
    base_url: Url | None = None
    api_key_env: Variable | Literal[""] | None = None
    """Empty: the endpoint needs no key."""
    window_tokens: Count | None = None
    max_output_tokens: Count | None = None
    price: PriceTable | None = None
    cache_lifetime_seconds: Seconds | None = None
    """How long its cache serves an entry for certain after the last use."""
    cache_long_lifetime_seconds: Seconds | None = None
    """The same for entries that were asked to live longer, where that is possible."""
    cache_minimum_tokens: Count | None = None
    """A shorter prefix is not cached."""
    cache_block_tokens: Count | None = None
    """A prefix is served in whole blocks of so many tokens."""
    cache_whole_requests: bool | None = None
    """Whether a prefix is found only where an earlier request or its reply ended (DeepSeek)."""
    cache_lag_seconds: Seconds | None = None
    """How long after an answer began what was read for it is served to others, where that is not at once."""
    cache_breakpoints: bool | None = None
    """Whether the endpoint takes explicit cache breakpoints in messages (OpenAI since 5.6)."""
    render_order: RenderOrder | None = None
    """What the model reads first."""
    send_reasoning: bool | None = None
    """Whether the endpoint gets the reasoning back that it sent; only an explicit false keeps it from that."""
    source: str | None = None
    """Where the numbers come from."""
    date: str | None = None
    """When they were looked up."""
    slots: Count | None = None
    """How many slots a llama.cpp server has (`--parallel`): each agent keeps to one of them."""
    options: Mapping[str, JsonValue] | None = None
    """Further parameters of its requests."""


class Settings(Section):
    """Everything that a user may set, with its defaults."""

    planner: PlannerSettings = PlannerSettings()
    worker: WorkerSettings = WorkerSettings()
    spine: SpineSettings = SpineSettings()
    limits: LimitSettings = LimitSettings()
    retry: RetrySettings = RetrySettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    parallel: Count = 4
    """Runs at the same time."""
    prefix: PrefixMode = "warn"
    """What happens when a request does not extend the one before."""
    apply: bool = True
    """Whether the result goes into the user's checkout, and not only on a branch."""
    sandbox: SandboxSettings = SandboxSettings()
    permissions: PermissionSettings = PermissionSettings()
    secrets: SecretSettings = SecretSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    project: ProjectSettings = ProjectSettings()
    skills: SkillSettings = SkillSettings()
    mcp: McpSettings = McpSettings()
    store: StoreSettings = Field(default=StoreSettings(), exclude=True)
    hooks: tuple[HookTable, ...] = Field(default=(), exclude=True)
    """A matter of the host, too: no session brings its own."""
    check_timeout_seconds: Seconds = 600.0
    checks: tuple[Name, ...] = ()
    """Commands that the result as a whole must pass."""
    models: Mapping[str, ModelTable] = {}
    """The user's own additions to the table of known models."""
