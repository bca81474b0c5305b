"""simcse_jax: contrastive sentence encoders in JAX and Flax."""

__version__ = "0.1.0"


def __getattr__(name: str):
    # Resolved on first use, so that `import simcse_jax` does not pay for JAX.
    if name == "SimCSE":
        from simcse_jax.simcse import SimCSE

        return SimCSE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
