"""What every table of settings is."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

Name: TypeAlias = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """Frozen; what it does not know, it refuses."""

    model_config = ConfigDict(frozen=True, extra="forbid")
