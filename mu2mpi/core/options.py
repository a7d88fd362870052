"""What methods and trust modes derive their own options from."""

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Options that a thing has beside those of every experiment; each with a default and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid")
