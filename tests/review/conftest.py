"""A folder of made images, and servers that end with their test."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra app is not installed: pip install 'sinkshot[app]'")
pytest.importorskip("uvicorn", reason="the extra app is not installed: pip install 'sinkshot[app]'")

from review_server import Server, made_photos


@pytest.fixture
def photos(tmp_path):
    return made_photos(tmp_path / "photos")


@pytest.fixture
def start():
    """Start servers; those that still run at the end are killed."""
    servers = []

    def started(*arguments, **options):
        servers.append(Server(*arguments, **options))
        return servers[-1]

    yield started
    for server in servers:
        if server.process.poll() is None:
            server.kill()
