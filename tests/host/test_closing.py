from types import SimpleNamespace

import pytest

from simcse_jax.errors import UserError
from simcse_jax.host.closing import closing_all


def test_all_are_closed_and_the_first_error_counts():
    closed = []

    def thing(name, error=None):
        def close():
            closed.append(name)
            if error:
                raise error

        return SimpleNamespace(close=close)

    with pytest.raises(UserError, match="within"), closing_all([thing("a", UserError("closing")), thing("b")]):
        raise UserError("within")
    assert closed == ["a", "b"]
    with pytest.raises(UserError, match="closing"), closing_all([thing("c", UserError("closing")), thing("d")]):
        pass
    assert closed == ["a", "b", "c", "d"]
