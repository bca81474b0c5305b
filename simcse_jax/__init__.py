"""simcse_jax: contrastive sentence encoders in JAX and Flax."""

from simcse_jax.version import __version__ as __version__


def __getattr__(name: str):
    # Resolved on first use, so that `import simcse_jax` does not pay for JAX.
    if name == "SimCSE":
        from simcse_jax.simcse import SimCSE

        return SimCSE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
