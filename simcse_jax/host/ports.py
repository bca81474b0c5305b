"""Binding a port of this machine."""

import ipaddress
import socket

from simcse_jax.errors import UserError

LOCAL = "127.0.0.1"


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the port, or to a free one for 0; nobody can connect before it is served."""
    if not 0 <= port < 2**16:
        raise UserError(f"--port {port}: must be from 0 to 65535")
    if not host:
        raise UserError("--host: is empty; name an address")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise UserError(f"--host {host}: no such address") from None
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise UserError(f"--host {host} --port {port}: {error.strerror}; choose another --port") from None
    return bound


def is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
