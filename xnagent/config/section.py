"""What every table of settings is, and the kinds of values that several of them have."""

from __future__ import annotations

from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


def _refuse_bool(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("an address begins with http:// or https:// and names a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "a key has no place in an address; name its environment variable with api_key_env or bearer_env"
        )
    return url


Number = BeforeValidator(_refuse_bool)
Name: TypeAlias = Annotated[str, Field(min_length=1)]
Seconds: TypeAlias = Annotated[float, Number, Field(gt=0, allow_inf_nan=False)]
Url: TypeAlias = Annotated[str, AfterValidator(_check_url)]
Variable: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of an environment variable."""


class Section(BaseModel):
    """Frozen; what it does not know, it refuses."""

    model_config = ConfigDict(frozen=True, extra="forbid")
