"""Who may see and steer the served scene: real requests and WebSockets on this machine, honest and foreign."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest

pytest.importorskip("viser")

import viser
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

import jaxsoa as soa
from jaxsoa.viz import view
from jaxsoa.viz.guard import Guard, free_port

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def viewer():
    with view(soa.models.pendulum(1), np.zeros(1), port=8340, verbose=False) as viewer:
        yield viewer


def get(url: str, **headers: str) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        assert not error.read().startswith(b"<")
        return error.code


def first_message(url: str, *, origin: str | None = None, host: str | None = None) -> bytes | int:
    """What the server sends of the scene at once, or the status with which it refuses."""

    async def talk() -> bytes | int:
        protocol = [Subprotocol(f"viser-v{viser.__version__}")]
        headers = {} if host is None else {"Host": host}
        given = None if origin is None else Origin(origin)
        try:
            async with connect(
                url, origin=given, subprotocols=protocol, additional_headers=headers, proxy=None
            ) as connection:
                message = await asyncio.wait_for(connection.recv(), 60)
                return message if isinstance(message, bytes) else message.encode()
        except InvalidStatus as refusal:
            return refusal.response.status_code

    return asyncio.run(talk())


def test_the_address_is_needed_and_only_its_own_page_may_connect(viewer):
    port, own = viewer.server.get_port(), viewer.url
    there, secret = f"127.0.0.1:{port}", viewer._guard.secret
    assert own == f"http://{there}/{secret}/" and len(secret) >= 20
    assert get(own) == 200
    assert get(f"http://localhost:{port}/{secret}/") == 200
    for path in ("", "index.html", "wrong/", secret[:-1], f"{secret}x/", f"x/{secret}/", f"?{secret}", "é/"):
        assert get(f"http://{there}/{urllib.request.quote(path, safe='/?')}") == 403, path  # pyright: ignore[reportAttributeAccessIssue]
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "127.0.0.1@evil.example"):
        assert get(own, Host=host) == 403, host
    for origin in ("http://evil.example", "null", "http://127.0.0.1", f"http://localhost:{port}", "file://"):
        assert get(own, Origin=origin) == 403, origin


def test_the_scene_is_sent_to_its_own_page_only(viewer):
    port, secret = viewer.server.get_port(), viewer._guard.secret
    own = f"ws://127.0.0.1:{port}/{secret}"
    shown = first_message(own, origin=f"http://127.0.0.1:{port}")
    assert isinstance(shown, bytes) and len(shown) > 100
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "https://evil.example:443"):
        assert first_message(own, origin=origin) == 403
        assert first_message(f"ws://127.0.0.1:{port}", origin=origin) == 403
    assert first_message(f"ws://127.0.0.1:{port}/", origin=f"http://127.0.0.1:{port}") == 403  # without the secret
    assert len(viewer.server.get_clients()) == 0


def test_a_foreign_name_that_leads_here_is_refused_even_with_its_own_origin(viewer):
    """DNS rebinding: the browser believes that the page and the server are one site."""
    port, secret = viewer.server.get_port(), viewer._guard.secret
    request = (
        f"GET /{secret} HTTP/1.1\r\nHost: evil.example:{port}\r\nOrigin: http://evil.example:{port}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    for text in (request, request.replace("Host:", f"Host: 127.0.0.1:{port}\r\nHost:")):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
            raw.sendall(text.encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 403")


def test_served_to_other_machines_the_secret_and_the_origin_still_count():
    guard = Guard("0.0.0.0")
    path, there = f"/{guard.secret}/", ["robot.lab:8080"]
    assert guard.refusal(path, there, []) is None
    assert guard.refusal(path, there, ["http://robot.lab:8080"]) is None
    assert guard.refusal(path, there, ["http://evil.example"])
    assert guard.refusal("/", there, [])


def test_other_servers_are_not_touched_while_viser_starts():
    from websockets.asyncio import server

    async def answer(guard: Guard) -> None:
        with guard.standing_before_viser():
            running = server.serve(lambda connection: connection.send("free"), "127.0.0.1", 0)
        async with running as started:
            port = started.sockets[0].getsockname()[1]
            evil = Origin("http://evil.example")
            async with connect(f"ws://127.0.0.1:{port}", origin=evil, proxy=None) as connection:
                assert await connection.recv() == "free"

    guard, before = Guard("127.0.0.1"), server.serve
    asyncio.run(answer(guard))
    assert not guard.stands and server.serve is before


def test_ports_that_cannot_be_had():
    for port in (-1, 65536, 99999):
        with pytest.raises(ValueError, match="from 0 to 65535"):
            view(soa.models.pendulum(1), port=port)
    with pytest.raises(OSError):
        free_port("name.invalid", 8080)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert free_port("127.0.0.1", number) > number
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="None of the ports"):
            patch.setattr("jaxsoa.viz.guard.TRIES", 1)
            free_port("127.0.0.1", number)
