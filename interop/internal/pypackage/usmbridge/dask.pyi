"""Types of usmbridge.dask."""

from typing import Any, Literal

from distributed import Client

__all__ = ["setup"]

# With an asynchronous client it returns an awaitable.
def setup(
    client: Client | None = None, *, limit: int | float | str | None = None, receive: Literal["shared", "host"] | None = None
) -> Any: ...
