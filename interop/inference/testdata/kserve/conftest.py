"""Imports KServe's clients without the dependencies of its server, which they do not use."""

import os
import sys
import types
from unittest import mock

import pytest

# The package's own __init__ imports the server and the Kubernetes client.
kserve = types.ModuleType("kserve")
kserve.__path__ = [os.path.join(p, "kserve") for p in sys.path if os.path.isdir(os.path.join(p, "kserve", "protocol"))]
sys.modules["kserve"] = kserve
for name in ("pandas", "psutil", "yaml", "cloudevents", "cloudevents.conversion", "cloudevents.http", "fastapi", "fastapi.responses"):
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = mock.MagicMock()
try:
    import pydantic
except ImportError:
    pydantic = mock.MagicMock()
    pydantic.BaseModel = object
    sys.modules["pydantic"] = pydantic


@pytest.fixture(scope="session")
def rest_url():
    return "http://" + os.environ["REST"]


@pytest.fixture(scope="session")
def grpc_url():
    return os.environ["GRPC"]
