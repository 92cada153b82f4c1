"""Types of usmbridge.dask."""

from typing import Any

from distributed import Client

__all__ = ["setup"]

# With an asynchronous client it returns an awaitable.
def setup(client: Client | None = None, *, limit: int | float | str | None = None) -> Any: ...
