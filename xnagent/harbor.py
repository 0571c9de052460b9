"""xnagent as an agent of Harbor: `harbor run --agent xnagent.harbor:XnagentAgent` (docs/benchmarks.md).

It is loaded by Harbor, in Harbor's own Python (from 3.12 on), and by nothing of ours: beside Harbor it needs the
standard library alone. The container of a task gets xnagent itself, and is its box.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Any, ClassVar, Final

from harbor.agents.agent_auth_resolution import ModelConnectionSpec, ProviderAccess
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed import base
from harbor.agents.options import InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext, ModelUsage
from harbor.models.model_api_format import ApiFormatSource, ModelApiFormat
from harbor.models.task.config import MCPServerConfig
from pydantic import Field

PLACE: Final = PurePosixPath("/installed-agent")
"""Where Harbor's agents keep what is theirs in a container."""
INSTRUCTION: Final = PLACE / "xnagent-instruction.md"
CONFIG: Final = PLACE / "xnagent.toml"
TRAJECTORY: Final = "trajectory.json"
"""Where Harbor looks for a trajectory, in the folder of the agent's logs."""
RECORD: Final = "xnagent.json"
PROGRESS: Final = "xnagent.txt"
HOME: Final = "xnagent"
"""Where sessions are, in that folder."""
LOOKING_SECONDS: Final = 120
WITH_PATH: Final = 'export PATH="$HOME/.xnagent/venv/bin:$PATH"; '
INSTALL: Final = """\
set -eu
if python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  python3 -m venv "$HOME/.xnagent/venv"
  "$HOME/.xnagent/venv/bin/python" -m pip install --quiet --disable-pip-version-check {package}
else
  export PATH="$HOME/.local/bin:$PATH"
  command -v uv >/dev/null 2>&1 || curl -LsSf https://astral.sh/uv/install.sh | sh
  uv venv --quiet --python 3.12 "$HOME/.xnagent/venv"
  uv pip install --quiet --python "$HOME/.xnagent/venv/bin/python" {package}
fi
"$HOME/.xnagent/venv/bin/xnagent" --version
"""
WIRES: Final = {
    ModelApiFormat.OPENAI_CHAT_COMPLETIONS: "chat",
    ModelApiFormat.OPENAI_RESPONSES: "responses",
    ModelApiFormat.ANTHROPIC_MESSAGES: "messages",
}
TRANSPORTS: Final = frozenset({"stdio", "streamable-http"})
TOLD: Final = ("session", "outcome", "exit_code", "verified", "error", "tasks", "runs", "steps", "spine")
"""What of the final record goes into the metadata of the agent's result."""
ENDED: Final = frozenset({0, 3, 4, 5, 6, 7})
"""Exit codes after which the task's own verifier judges: the session came to its end, or to a limit that it had."""
FAULTS: Final[dict[str, type[base.NonZeroAgentExitCodeError]]] = {
    "overloaded": base.ApiOverloadedError,
    "rate_limited": base.ApiRateLimitError,
    "server": base.ApiInternalServerError,
    "timeout": base.ApiResponseStalledError,
    "incomplete": base.ApiConnectionClosedError,
    "connection": base.NetworkConnectionError,
    "authentication": base.AgentAuthenticationError,
    "quota": base.ApiUsageLimitError,
    "bad_request": base.UnsupportedModelParametersError,
    "not_found": base.ModelNotFoundError,
    "content_refused": base.AgentSafetyRefusalError,
    "protocol": base.UnknownApiError,
    "context_overflow": base.ContextWindowExceededError,
    "output_budget": base.OutputTokenExceededError,
}
"""By the class of a final record's error; those that are a provider's."""


class XnagentOptions(InstalledAgentOptions):
    """What `--agent-kwarg` may say."""

    package: str | None = Field(default=None, description="What pip installs; default: xnagent, of `version` if given.")
    wheel: str | None = Field(default=None, description="A wheel on this machine, to be installed in its place.")
    worker_model: str | None = Field(default=None, description="The Workers' model, if it is another one.")
    arguments: str = Field(default="", description="Further options of `xnagent run`, such as --max-usd 2.")


class XnagentAgent(base.BaseInstalledAgent):
    """Installs xnagent in the task's container, runs one session there, hands trajectory and usage to Harbor."""

    capabilities = AgentCapabilities(base_url=True, atif=True, skills=True, mcp_servers=True, mcp_http_headers=True)
    options_model = XnagentOptions
    MODEL_CONNECTION: ClassVar[ModelConnectionSpec] = ModelConnectionSpec(
        default_provider="openai",
        agent_provider_access=ProviderAccess(
            api_key_candidate_names=["OPENAI_API_KEY"], base_url_candidate_names=["OPENAI_BASE_URL"]
        ),
        supported_api_formats=list(WIRES),
        default_api_format_by_provider={
            "default": ModelApiFormat.OPENAI_CHAT_COMPLETIONS,
            "anthropic": ModelApiFormat.ANTHROPIC_MESSAGES,
        },
        api_key_destination_names={"default": "OPENAI_API_KEY"},
        base_url_destination_names={"default": "OPENAI_BASE_URL"},
    )

    @staticmethod
    def name() -> str:
        """The agent's, in Harbor's results."""
        return "xnagent"

    def get_version_command(self) -> str:
        """What prints the version in the container."""
        return f"{WITH_PATH}xnagent --version"

    def parse_version(self, stdout: str) -> str:
        """The version alone, of `xnagent 1.2.3`."""
        return stdout.strip().rpartition(" ")[2]

    async def install(self, environment: BaseEnvironment) -> None:
        """An environment of its own for xnagent in the user's home; with uv where there is no Python from 3.11 on."""
        await self.ensure_system_dependencies(environment, ("curl", "ca_certificates", "git"))
        extra = "[mcp]" if self.mcp_servers else ""
        package = self.options.package or f"xnagent{extra}{f'=={self.version()}' if self.version() else ''}"
        if self.options.wheel is not None:
            inside = PLACE / Path(self.options.wheel).name
            await environment.upload_file(Path(self.options.wheel), str(inside))
            package = f"{inside}{extra}"
        await self.exec_as_agent(environment, INSTALL.format(package=shlex.quote(package)))

    async def configure(self, environment: BaseEnvironment) -> None:
        """Hand on the servers of MCP, and skills as the user's own. Raises ValueError for a model of nobody known."""
        self._model()
        for server in self.mcp_servers:
            if server.transport not in TRANSPORTS:
                self.logger.warning("MCP server %s: xnagent does not speak %s", server.name, server.transport)
        text = configuration(self.mcp_servers, headers=self.mcp_header_env.refs)
        await _put(environment, CONFIG, text=text)
        if self.skills_dir is not None:
            source = shlex.quote(self.skills_dir)
            target = '"${XDG_CONFIG_HOME:-$HOME/.config}/xnagent/skills"'
            await self.exec_as_agent(environment, f"mkdir -p {target} && cp -R {source}/. {target}")

    @base.with_prompt_template
    async def run(self, instruction: str, environment: BaseEnvironment, *, context: AgentContext) -> None:
        """One session to its end. Raises Harbor's own error for what was not the session's doing."""
        await _put(environment, INSTRUCTION, text=instruction)
        options, variables = self._model()
        logs, home = self.environment_logs_dir, str(self.environment_logs_dir / HOME)
        fixed = ["--home", home, "--config", str(CONFIG), "--output", "json", "--sandbox", "external"]
        line = shlex.join(
            ["xnagent", "run", "-f", str(INSTRUCTION), *fixed, *options, *shlex.split(self.options.arguments)]
        )
        command = f"{WITH_PATH}{line} > {logs / RECORD} 2> {logs / PROGRESS} < /dev/null"
        try:
            done = await environment.exec(command=command, env={**variables, **self.mcp_header_env.env})
        finally:
            await self._export(environment)
        told = await environment.exec(command=f"cat {logs / RECORD}; tail -c 4000 {logs / PROGRESS} >&2")
        record = _parsed(told.stdout)
        self._fill(context, record)
        workspace = record.get("workspace") or {}
        if workspace.get("branch") and not workspace.get("applied"):
            await environment.exec(command=f"git merge --quiet --ff-only {shlex.quote(workspace['branch'])}")
        if done.return_code not in ENDED:
            raise _error(done.return_code, record, progress=told.stderr or done.stderr or "")

    def _model(self) -> tuple[list[str], dict[str, str]]:
        """The options that lead to the model, and the variables that they need."""
        if not self.model_name:
            return [], {}
        connection = self.model_connection
        address = connection.execution_base_url or connection.inferred_base_url
        if self._parsed_model_provider is None and not connection.execution_base_url:
            raise ValueError(f"whose model is {self.model_name}? write -m PROVIDER/NAME, or give a --base-url")
        options, variables = ["--model", str(connection.model_id)], {}
        if self.options.worker_model:
            options += ["--worker-model", self.options.worker_model]
        if address:
            options += ["--base-url", address]
        is_told = connection.api_format_source == ApiFormatSource.CLI_FLAG_OVERRIDE
        if is_told or connection.provider == "anthropic":
            options += ["--wire", WIRES[connection.model_api_format]]
        if connection.api_key:
            variable = connection.api_key_source_name or "OPENAI_API_KEY"
            options += ["--api-key-env", variable]
            variables[variable] = connection.api_key
        return options, variables

    async def _export(self, environment: BaseEnvironment) -> None:
        """The trajectory, of a session that was cut off too."""
        home = str(self.environment_logs_dir / HOME)
        listing = WITH_PATH + shlex.join(["xnagent", "sessions", "--output", "json", "--home", home])
        listed = await environment.exec(command=listing, timeout_sec=LOOKING_SECONDS)
        sessions = _parsed(listed.stdout).get("sessions")
        if not sessions:
            return
        target = str(self.environment_logs_dir / TRAJECTORY)
        line = ["xnagent", "export", sessions[0]["session"], "--format", "atif", "-o", target, "--home", home]
        await environment.exec(command=WITH_PATH + shlex.join(line), timeout_sec=LOOKING_SECONDS)

    def _fill(self, context: AgentContext, record: Mapping[str, Any]) -> None:
        usage = record.get("usage")
        if not isinstance(usage, dict):
            return
        whole = _usage_of(usage)
        context.n_input_tokens = whole.n_input_tokens
        context.n_cache_tokens = whole.n_cache_tokens
        context.n_output_tokens = whole.n_output_tokens
        context.cost_usd = whole.cost_usd
        planner = str(self.model_connection.model_id or "default") if self.model_name else "default"
        worker = self.options.worker_model or planner
        roles = {planner: usage} if worker == planner else dict(zip((planner, worker), _by_role(usage), strict=True))
        context.model_usage = {model: _usage_of(part) for model, part in roles.items()}
        context.metadata = {name: record[name] for name in TOLD if name in record}

    def populate_context_post_run(self, context: AgentContext) -> None:
        """What a session that was cut off had used, from its trajectory."""
        try:
            found = json.loads((self.logs_dir / TRAJECTORY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        self._fill(context, {"usage": found["final_metrics"]["extra"]["whole_session"]})


def configuration(servers: Sequence[MCPServerConfig], *, headers: Mapping[str, Mapping[str, str]]) -> str:
    """The servers as TOML, whose texts may be written as those of JSON. Headers are the names of variables."""
    lines = [""]
    for server in servers:
        if server.transport not in TRANSPORTS:
            continue
        is_program = server.transport == "stdio"
        table = {"command": server.command, "args": list(server.args)} if is_program else {"url": server.url}
        lines += [f"[mcp.servers.{json.dumps(server.name)}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        if refs := headers.get(server.name):
            pairs = ", ".join(f"{json.dumps(header)} = {json.dumps(name)}" for header, name in refs.items())
            lines += [f"headers_env = {{ {pairs} }}"]
    return "\n".join([*lines, ""])


async def _put(environment: BaseEnvironment, target: PurePosixPath, *, text: str) -> None:
    with NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        await environment.upload_file(file.name, str(target))


def _usage_of(usage: Mapping[str, Any]) -> ModelUsage:
    return ModelUsage(
        n_input_tokens=usage.get("input_tokens") or 0,
        n_cache_tokens=usage.get("cached_tokens") or 0,
        n_output_tokens=usage.get("output_tokens") or 0,
        cost_usd=usage.get("cost_usd"),
    )


def _by_role(usage: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return usage["by_role"].get("planner", {}), usage["by_role"].get("worker", {})


def _error(code: int, record: Mapping[str, Any], *, progress: str) -> base.NonZeroAgentExitCodeError:
    error = record.get("error") or {}
    kind = FAULTS.get(str(error.get("class")), base.NonZeroAgentExitCodeError)
    reason = error.get("message") or progress[-2_000:].strip() or "nothing was said"
    return kind(f"xnagent ended with exit code {code}: {reason}")


def _parsed(text: str | None) -> dict[str, Any]:
    """The object in the last line; empty if there is none."""
    try:
        found = json.loads((text or "").strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}
