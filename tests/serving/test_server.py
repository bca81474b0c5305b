import pytest
from support.fake_server import FakeEncoder

from simcse_jax.errors import UserError
from simcse_jax.host.ports import bind
from simcse_jax.serving import server
from simcse_jax.serving.app import App
from simcse_jax.serving.prometheus import Metrics
from simcse_jax.serving.server import address_of, serve
from simcse_jax.serving.service import Limits, Service


def test_of_two_programs_that_start_on_a_port_one_is_told():
    with bind("127.0.0.1", 0) as first, bind("127.0.0.1", first.getsockname()[1]) as second:
        assert address_of(first) == f"http://127.0.0.1:{first.getsockname()[1]}"
        first.listen()
        with pytest.raises(UserError, match="--port: Address already in use; choose another"):
            serve(fake(FakeEncoder()).asgi, second, 1, "said")


def test_a_program_that_cannot_be_compiled_ends_the_server(capsys):
    def warm(shape):
        raise MemoryError("the device is full")

    encoder = FakeEncoder()
    encoder.warm = warm
    app = fake(encoder)
    with bind("127.0.0.1", 0) as bound, pytest.raises(MemoryError, match="the device is full"):
        serve(app.asgi, bound, 1, "said", lambda: app.failure)
    assert capsys.readouterr().out == "said\n" and not app.ready


def test_an_idle_connection_outlives_those_of_proxies(monkeypatch):
    class Server:
        def __init__(self, config, *_):
            assert config.timeout_keep_alive > 60

        async def serve(self, sockets):
            raise EOFError

    monkeypatch.setattr(server, "_Server", Server)
    with pytest.raises(EOFError):
        serve(fake(FakeEncoder()).asgi, None, 1, "said")


def fake(encoder):
    return App(Service("fake", {None: encoder}, Limits()), Metrics())
