"""ATIF v1.8 as its specification describes it, strict: what is unknown or of another type is refused."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Extra = dict[str, Any] | None


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Call(Strict):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra = None


class Reference(Strict):
    trajectory_id: str
    extra: Extra = None


class Result(Strict):
    source_call_id: str | None = None
    content: str | None = None
    subagent_trajectory_ref: list[Reference] | None = None
    extra: Extra = None


class Observation(Strict):
    results: list[Result]


class Metrics(Strict):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    extra: Extra = None


class Step(Strict):
    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    message: str
    reasoning_content: str | None = None
    tool_calls: list[Call] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: int | None = Field(default=None, ge=0)
    extra: Extra = None

    @field_validator("timestamp")
    @classmethod
    def is_a_time(cls, value: str | None) -> str | None:
        assert value is None or datetime.fromisoformat(value)
        return value

    @model_validator(mode="after")
    def only_agents_speak(self) -> "Step":
        alone = (self.model_name, self.reasoning_content, self.tool_calls, self.metrics)
        assert self.source == "agent" or alone == (None, None, None, None)
        calls = {call.tool_call_id for call in self.tool_calls or ()}
        named = [result.source_call_id for result in (self.observation.results if self.observation else ())]
        assert all(name is None or name in calls for name in named)
        return self


class Totals(Strict):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int = Field(ge=0)
    extra: Extra = None


class Agent(Strict):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    extra: Extra = None


class Trajectory(Strict):
    schema_version: Literal["ATIF-v1.8"]
    session_id: str
    trajectory_id: str
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    notes: str | None = None
    final_metrics: Totals
    subagent_trajectories: list["Trajectory"] = Field(default_factory=list)
    extra: Extra = None

    @model_validator(mode="after")
    def is_whole(self) -> "Trajectory":
        assert [step.step_id for step in self.steps] == list(range(1, len(self.steps) + 1))
        assert self.final_metrics.total_steps == len(self.steps)
        names = [child.trajectory_id for child in self.subagent_trajectories]
        assert len(set(names)) == len(names)
        results = [result for step in self.steps if step.observation for result in step.observation.results]
        referred = [ref.trajectory_id for result in results for ref in result.subagent_trajectory_ref or ()]
        assert set(referred) <= set(names)
        return self
