"""Choosing an implementation by the platform that a program is compiled for."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax

Output = TypeVar("Output")
ALONE = ("cpu", "tpu")  # a device's name of its platform is also that of `for_platform`; of GPUs it is not
_platform = jax.make_user_context(default_value=None)  # part of the key under which `jax.jit` keeps what it traced


def tracing_for(platform: str) -> AbstractContextManager[None]:
    """While tracing: the program is for devices of this platform only (`jax.Device.platform`).

    Otherwise every way is traced, differentiated and lowered, though the compiler gets one of them, as is still so for
    GPUs.
    """
    return _platform(platform if platform in ALONE else None)


def for_platform(*args: Any, default: Callable[..., Output], **ways: Callable[..., Output]) -> Output:
    """`jax.lax.platform_dependent`: way(*args) of the platform that the program is for, otherwise default(*args).

    Within `tracing_for`, no other way is traced.
    """
    if (platform := _platform.value) is None:
        return jax.lax.platform_dependent(*args, default=default, **ways)
    return ways.get(platform, default)(*args)
