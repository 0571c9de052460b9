"""Commands of the user around what sessions do (docs/hooks.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from xnagent.config.section import Name, Number, Section, Variable
from xnagent.core.hook_events import HookPoint
from xnagent.core.hooks import ABOUT_TOOLS, DENYING, Hook
from xnagent.core.permissions import parse_rule

OF_THE_FOLDER: Final = re.compile(r"\s*(?![/~$])[^\s/'\"]+/")
"""A program by its place in the folder where hooks run: the repository's."""


class HookTable(Section):
    """One hook."""

    on: HookPoint
    command: Name
    """For `sh -c`; reads one JSON object."""
    match: Name | None = None
    """For which calls: a rule as in permissions.deny."""
    seconds: Annotated[float, Number, Field(gt=0, le=3_600)] = 60.0
    """Then it is killed."""
    on_error: Literal["deny", "go on"] | None = None
    """What an exit code other than 0 and 2, a timeout or a program that is missing means; None: go on."""
    env: tuple[Variable, ...] = ()
    """Names of variables with secrets that it gets all the same."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.match is not None and self.on not in ABOUT_TOOLS:
            raise ValueError(f"match is for before_tool and after_tool; {self.on} has no call that it could match")
        if self.on_error == "deny" and self.on not in DENYING:
            raise ValueError(f'on_error = "deny" is for {", ".join(sorted(DENYING))}; {self.on} can deny nothing')
        if OF_THE_FOLDER.match(self.command):
            raise ValueError(
                "a hook runs in the repository's folder, so this would run a file of the repository; "
                "name the program by its whole path"
            )
        self.to_hook()
        return self

    @model_validator(mode="before")
    @classmethod
    def _as_table(cls, value: object) -> object:
        """A command alone is told what it lacks."""
        return {"command": value} if isinstance(value, str) else value

    def to_hook(self) -> Hook:
        """As the core takes it."""
        return Hook(
            on=self.on,
            command=self.command,
            rule=None if self.match is None else parse_rule(self.match),
            seconds=self.seconds,
            must_pass=self.on_error == "deny",
            env=self.env,
        )


def in_toml(hooks: Iterable[Hook]) -> str:
    """The hooks as the value of a setting: for another process."""
    return f"[{', '.join(map(_table, hooks))}]"


def _table(hook: Hook) -> str:
    fields: dict[str, object] = {"on": hook.on, "command": hook.command, "seconds": hook.seconds, "env": hook.env}
    if hook.rule is not None:
        fields["match"] = hook.rule.text
    if hook.must_pass:
        fields["on_error"] = "deny"
    return f"{{{', '.join(f'{name} = {json.dumps(value)}' for name, value in fields.items())}}}"
