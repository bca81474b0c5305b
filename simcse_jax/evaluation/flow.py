"""BERT-flow (Li et al. 2020, "On the Sentence Embeddings from Pre-trained Language Models"): a small Glow.

An invertible map f of embeddings to a standard normal latent space, z = f(x), trained by maximum likelihood. As in the
authors' code (github.com/bohanli/BERT-flow, config_l3_d3_w32), three levels of three steps: an actnorm, the channels in
reverse order, and an additive coupling; after a level half of the channels go straight to z. Two things differ: the
actnorms are initialized from more than one batch, and Adam has its bias correction.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Float32, Key

from simcse_jax.errors import UserError
from simcse_jax.host.progress import Progress

LEVELS, DEPTH, WIDTH = 3, 3, 32
SCALE = 3.0  # log-scales are learned as multiples of it, as in Glow
BATCH_SIZE = 64  # sentences: the authors' 32 pairs
INITIAL_ROWS = 4096  # to initialize the actnorms from
BLOCK = 1024  # rows that are mapped at a time
CONSTANT = 1e-4  # a channel that varies by less, relative to the one that varies most, is not scaled
ROUNDING = 1e-6  # nor is a channel with a smaller standard deviation
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, eps=1e-6, weight_decay=0.01))

Params = list[dict[str, Any]]  # level → arrays, with a first axis of its steps


@jax.jit
def init(key: Key[Array, ""], x: Float[Array, "N D"]) -> Params:
    """Parameters with which every actnorm has mean 0 and variance 1 on x (N, D), and every coupling adds nothing."""
    params: Params = []
    for level in range(LEVELS):
        if level:
            x = x[:, : x.shape[1] // 2]
        x, steps = jax.lax.scan(_init_step, x, jax.random.split(jax.random.fold_in(key, level), DEPTH))
        params.append(steps)
    return params


def forward(params: Params, x: Float[Array, "B D"]) -> tuple[Float[Array, "B D"], Float[Array, ""]]:
    """z = f(x), (B, D) to (B, D), and log|det ∂z/∂x|, a scalar that all x share: an additive coupling keeps volumes.

    D must be 8 or more: a coupling of the last level needs two.
    """
    done, log_det = [], jnp.zeros(())
    for level, steps in enumerate(params):
        if level:
            half = x.shape[1] // 2
            x, rest = x[:, :half], x[:, half:]
            done.append(rest)
        x, log_dets = jax.lax.scan(_step, x, steps)
        log_det += jnp.sum(log_dets)
    return jnp.concatenate([*done, x], axis=1), log_det


def log_likelihood(params: Params, x: Float[Array, "B D"]) -> Float[Array, " B"]:
    """log p(x) = log N(f(x); 0, I) + log|det ∂f/∂x| (the paper's section 4), (B, D) to (B,), in nats."""
    z, log_det = forward(params, x)
    return jnp.sum(jax.scipy.stats.norm.logpdf(z), axis=1) + log_det


def fit(embeddings: Float[np.ndarray, "N D"], seed: int = 0, epochs: int = 1) -> Params:
    """The parameters of maximum likelihood on embeddings (N, D): the same for the same seed. Shows its progress."""
    embeddings = np.asarray(embeddings, np.float32)
    generator = np.random.Generator(np.random.Philox(key=seed))
    rows = generator.permutation(len(embeddings))
    batch_size = min(BATCH_SIZE, len(embeddings))
    with jax.default_matmul_precision("highest"):  # float32 on TPUs and GPUs too
        params = init(jax.random.key(seed, impl="threefry2x32"), jnp.asarray(embeddings[rows[:INITIAL_ROWS]]))
        state = OPTIMIZER.init(params)
        places = range(0, len(rows) - batch_size + 1, batch_size)
        with Progress(epochs * len(places), "batches", shown=jax.process_index() == 0) as bar:
            for _ in range(epochs):
                for place in places:
                    params, state = _update(params, state, embeddings[rows[place : place + batch_size]])
                    bar.advance()
                rows = generator.permutation(len(embeddings))
        if not np.isfinite(_log_likelihood(params, jnp.asarray(embeddings[rows[:INITIAL_ROWS]])).mean()):
            raise UserError("the flow's likelihood is not finite on the sentences that it was fit on; try whitening")
    return params


def transform(params: Params, embeddings: Float[np.ndarray, "N D"]) -> Float32[np.ndarray, "N D"]:
    """z of embeddings (N, D), (N, D) float32."""
    blocks = [np.zeros((0, embeddings.shape[1]), np.float32)]
    for start in range(0, len(embeddings), BLOCK):
        block = np.asarray(embeddings[start : start + BLOCK], np.float32)
        filled = np.pad(block, ((0, BLOCK - len(block)), (0, 0)))  # one shape, one compilation
        with jax.default_matmul_precision("highest"):
            blocks.append(np.asarray(_forward(params, filled)[0])[: len(block)])
    return np.concatenate(blocks)


_forward, _log_likelihood = jax.jit(forward), jax.jit(log_likelihood)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def _update(params: Params, state: optax.OptState, batch: Float[Array, "B D"]) -> tuple[Params, optax.OptState]:
    def bits_per_dimension(params: Params) -> Float[Array, ""]:
        return -jnp.mean(log_likelihood(params, batch)) / (jnp.log(2.0) * batch.shape[1])

    gradient = jax.grad(bits_per_dimension)(params)
    updates, state = OPTIMIZER.update(gradient, state, params)
    return optax.apply_updates(params, updates), state


def _actnorm(norm: dict[str, Float[Array, " D"]], x: Float[Array, "B D"]) -> Float[Array, "B D"]:
    return (x + norm["bias"]) * jnp.exp(SCALE * norm["log_scale"])


def _init_actnorm(x: Float[Array, "N D"]) -> dict[str, Float[Array, " D"]]:
    std = jnp.std(x, axis=0)
    std = jnp.where(std > jnp.maximum(CONSTANT * jnp.max(std), ROUNDING), std, 1.0)
    return {"bias": -jnp.mean(x, axis=0), "log_scale": -jnp.log(std) / SCALE}


def _shift(step: dict[str, Any], x: Float[Array, "B kept"]) -> Float[Array, "B shifted"]:
    """The coupling's network: two hidden layers with actnorm, and a last one that starts at zero."""
    for layer in step["hidden"]:
        x = jax.nn.relu(_actnorm(layer["actnorm"], x @ layer["kernel"]))
    last = step["last"]
    return (x @ last["kernel"] + last["bias"]) * jnp.exp(SCALE * last["log_scale"])


def _init_step(x: Float[Array, "N D"], key: Key[Array, ""]) -> tuple[Float[Array, "N D"], dict[str, Any]]:
    """x after a fresh step, and the step."""
    step: dict[str, Any] = {"actnorm": _init_actnorm(x), "hidden": []}
    x = _actnorm(step["actnorm"], x)[:, ::-1]
    kept = x.shape[1] // 2
    size, hidden = x.shape[1] - kept, x[:, :kept]
    for layer_key in jax.random.split(key, 2):
        kernel = 0.05 * jax.random.normal(layer_key, (hidden.shape[1], WIDTH))
        step["hidden"].append({"kernel": kernel, "actnorm": _init_actnorm(hidden @ kernel)})
        hidden = jax.nn.relu(_actnorm(step["hidden"][-1]["actnorm"], hidden @ kernel))
    step["last"] = {"kernel": jnp.zeros((WIDTH, size)), "bias": jnp.zeros(size), "log_scale": jnp.zeros(size)}
    return x, step  # the coupling adds nothing yet


def _step(x: Float[Array, "B D"], step: dict[str, Any]) -> tuple[Float[Array, "B D"], Float[Array, ""]]:
    """x after a step, and the step's log-determinant."""
    x = _actnorm(step["actnorm"], x)[:, ::-1]
    kept, shifted = jnp.split(x, [x.shape[1] // 2], axis=1)
    x = jnp.concatenate([kept, shifted + _shift(step, kept)], axis=1)
    return x, SCALE * jnp.sum(step["actnorm"]["log_scale"])
