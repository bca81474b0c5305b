import socket

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host.ports import bind, is_local


def test_a_port_is_taken_at_once():
    with bind("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        assert 1024 <= port < 2**16
        with pytest.raises(ConnectionRefusedError):  # nobody is answered yet
            socket.create_connection(("127.0.0.1", port), timeout=5)
        bound.listen()
        with pytest.raises(UserError, match=f"--port {port}: Address already in use; choose another --port"):
            bind("127.0.0.1", port)


def test_a_wrong_place_is_reported():
    for host, port, message in (
        ("127.0.0.1", 70_000, "--port 70000: must be from 0 to 65535"),
        ("", 0, "--host: is empty"),
        ("no such host", 0, "--host no such host: no such address"),
        ("198.51.100.7", 0, "--host 198.51.100.7"),
    ):
        with pytest.raises(UserError, match=message):
            bind(host, port)


def test_which_addresses_are_this_machine_s_own():
    assert all(map(is_local, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_local, ("0.0.0.0", "::", "10.0.0.1", "example.org")))
