"""Types of usmbridge.dask."""

from typing import Any

__all__ = ["setup"]

# client is a distributed.Client: importing its type would make type checkers read all of distributed. With an
# asynchronous client setup returns an awaitable.
def setup(client: Any = None, *, limit: int | float | str | None = None) -> Any: ...
