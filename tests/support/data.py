from collections.abc import Callable, Sequence

import pytest

from simcse_jax.data.augment import augment
from simcse_jax.data.examples import read_examples
from simcse_jax.errors import UserError


def raises(part: str, call: Callable, *arguments: object, **options: object) -> None:
    with pytest.raises(UserError) as error:
        call(*arguments, **options)
    assert "\n" not in str(error.value) and part in str(error.value), str(error.value)


def refused(specification: str, *parts: str, options: dict | None = None, **columns: str) -> None:
    """The specification is refused, in a one-line message that contains all the parts."""
    with pytest.raises(UserError) as error:
        read_examples(specification, columns, **(options or {}))
    assert "\n" not in str(error.value)
    assert [part for part in parts if part not in str(error.value)] == [], str(error.value)


def change(texts: Sequence[str], name: str, percent=10.0, lexicon="", mlm_model="", seed=1, column=1) -> list[str]:
    fields = {"percent": percent, "lexicon": str(lexicon), "mlm_model": str(mlm_model)}
    return augment(texts, name=name, seed=seed, column=column, **fields)
