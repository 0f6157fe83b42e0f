"""Who may see and steer a served scene: whoever has its address, which holds a secret, and no page of another site.

Browsers let any page they show talk to servers on this machine. So every request must name the secret in its path, a
`Host` that is this machine (else a foreign name could be pointed here), and, from a browser, an `Origin` that is the
served page itself.
"""

from __future__ import annotations

import contextlib
import http
import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

#: Ports that are tried from the one asked for on.
TRIES = 1000

_lock = threading.Lock()


class Guard:
    """Lets requests through to the server behind it, or answers them: 403."""

    def __init__(self, host: str):
        self.secret = secrets.token_urlsafe(16)
        self.only_this_machine = is_this_machine(host)
        self.stands = False

    def refusal(self, path: str, hosts: list[str], origins: list[str]) -> str | None:
        """Why a request is refused, or None; `hosts` and `origins` are all headers of these names."""
        if len(hosts) != 1 or (self.only_this_machine and not is_this_machine(_without_port(hosts[0]))):
            return "This page is served to this machine under its own name only."
        if any(origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}") for origin in origins):
            return "Pages of other sites may not look at this one."
        given = path.partition("?")[0].split("/")[1:2]
        if not given or not secrets.compare_digest(given[0].encode(), self.secret.encode()):
            return "Open the address as it was printed, with all that follows the port."
        return None

    def before(self, handler: Callable) -> Callable:
        """`handler`, a `process_request` of websockets, behind this guard; it sees paths without the secret."""
        from websockets.datastructures import Headers
        from websockets.http11 import Response

        def guarded(connection: Any, request: Any) -> Any:
            headers = request.headers
            why = self.refusal(request.path, headers.get_all("Host"), headers.get_all("Origin"))
            if why is not None:
                body = f"{why}\n".encode()
                fields = {"Content-Type": "text/plain", "Content-Length": str(len(body)), "Connection": "close"}
                return Response(http.HTTPStatus.FORBIDDEN, "Forbidden", Headers(**fields), body)
            request.path = request.path[1 + len(self.secret) :] or "/"
            return handler(connection, request)

        return guarded

    @contextlib.contextmanager
    def standing_before_viser(self) -> Iterator[None]:
        """The servers that viser starts meanwhile are guarded; `stands` tells whether one was started."""
        import websockets.asyncio.server as servers

        with _lock:
            plain = servers.serve

            def serve(*arguments: Any, process_request: Any = None, **options: Any) -> Any:
                if getattr(process_request, "__module__", "").partition(".")[0] == "viser":
                    process_request, self.stands = self.before(process_request), True
                return plain(*arguments, process_request=process_request, **options)

            servers.serve = serve  # pyright: ignore[reportAttributeAccessIssue]
            try:
                yield
            finally:
                servers.serve = plain


def is_this_machine(host: str) -> bool:
    """Whether a host name is one of the loopback interface."""
    if host.lower() in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def free_port(host: str, port: int) -> int:
    """The first free port from `port` on; zero stays, for one that the system chooses."""
    if not 0 <= port <= 65535:
        raise ValueError(f"The port must be from 0 to 65535, got {port}.")
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    for candidate in range(port, min(port + TRIES, 65536)):
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((address[0], candidate, *address[2:]))
            except OSError:
                continue  # in use, or not for us
            return candidate
    raise OSError(f"None of the ports from {port} on can be had on {host!r}.")
