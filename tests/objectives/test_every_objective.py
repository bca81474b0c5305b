"""Every objective on one batch with all that any of them reads: over devices, as its peer has it, and trained on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import assert_sharded_is_whole, random
from support.steps import alone, named

from simcse_jax.data.scores import read_candidates
from simcse_jax.objectives.registry import OBJECTIVES, load_loss

ROWS, SIZE = 8, 5
SCORES = np.float32([0.1, 0.6, 1, 0.6, 0, 0.9, 0.1, 0.3])  # two ties
LENGTHS = np.array([4, 1, 2, 3, 4, 4, 1, 2])
TEACHER = random(ROWS, 4, 5, seed=3)  # an anchor, its positive, two negatives
TEACHER[:, 1] = TEACHER[:, 0] + 0.8 * TEACHER[:, 1]
ARRAYS = {"views": random(ROWS, 8, SIZE), "tokens": random(ROWS, 4, SIZE, seed=1), "kernel": random(15, 3, seed=2)}
CASES = (
    *(("angle", {"temperature": 0.05}), ("cosent", {"temperature": 0.05}), ("cosine_mse", {})),
    ("barlow_twins", {"artificial": 5, "off_diagonal_weight": 0.3, "reading": "paper"}),
    ("barlow_twins", {"artificial": 5, "off_diagonal_weight": 0.3, "reading": "released"}),
    *(("bidirectional_margin", {"lower": 0.1, "upper": 0.3}), ("contrastive_tension", {"negatives": 7})),
    ("dimension_wise", {"temperature": 2.0, "reading": "paper"}),
    ("dimension_wise", {"temperature": 2.0, "reading": "released"}),
    ("distill_kl", {"temperature": 2.0, "teacher_temperature": 0.5, "similarity": "dot"}),
    ("distill_kl", {"temperature": 0.1, "teacher_temperature": 0.0, "similarity": "cosine"}),
    *(("embedding_mse", {}), ("gist", {"temperature": 0.1, "margin": 0.0, "margin_kind": "absolute"})),
    ("info_nce", {"temperature": 0.5, "hard_negative_weight": 2.0, "similarity": "cosine", "symmetric": True}),
    ("info_nce", {"temperature": 0.5, "similarity": "cosine", "symmetric": True, "negatives": "both"}),
    ("info_nce", {"temperature": 0.5, "symmetric": True, "margin": 0.1, "hardness": 2.0, "weighted": "others"}),
    ("info_nce", {"temperature": 0.5, "symmetric": False, "negatives": "all", "margin": 0.1, "hardness": 2.0}),
    *(("jensen_shannon", {}), ("margin_mse", {"similarity": "dot"}), ("margin_mse", {"similarity": "cosine"})),
    *(("mlm", {}), ("momentum_contrast", {"temperature": 0.05}), ("off_dropout", {"temperature": 0.5, "m": 0.9})),
    *(("ranking_consistency", {"temperature": 0.05}), ("replaced_token_detection", {})),
    ("replaced_token_detection", {"reduction": "sum"}),
    ("ranking_distillation", {"temperature": 0.05, "teacher_temperature": 0.1, "method": "listmle"}),
    ("ranking_distillation", {"temperature": 0.05, "teacher_temperature": 0.1, "method": "listnet"}),
    *(("self_contrastive", {"temperature": 0.05}), ("softmax_nli", {}), ("spread_out", {})),
    *(("triplet", {"margin": 0.5, "distance": distance}) for distance in ("euclidean", "cosine")),
)


def views(rows):
    """Of (B, V, D), a pair and two negatives; of eight, the last four are these without dropout."""
    columns = jnp.moveaxis(rows, 1, 0)
    return named(columns[:4]) | {f"clean_{name}": part for name, part in named(columns[-4:]).items()}


def numbers(fields):
    """As a step has them."""
    fixed = {"margin", "hardness"} if "symmetric" in fields else set()  # of InfoNCE: compiled in
    return {name: jnp.float32(x) if isinstance(x, float) and name not in fixed else x for name, x in fields.items()}


def loss_of(name, fields):
    """Of rows and what all devices have, as `assert_sharded_is_whole` takes it."""

    def compute(rows, kernel, own, gather, psum):
        local = rows["tokens"], (np.arange(4) < jnp.asarray(LENGTHS)[own][:, None]).astype(int)
        sums = jnp.sum(rows["tokens"] ** 2, axis=(1, 2)), jnp.asarray(LENGTHS)[own]
        of_data = {"label": own % 3, "score": jnp.asarray(SCORES)[own], "teacher": views(jnp.asarray(TEACHER)[own])}
        given = {"tokens": local if name == "jensen_shannon" else sums, "params": {"softmax_nli.kernel": kernel}}
        given |= {"state": {"queue": random(5, SIZE, seed=7), "filled": 3}, "own": own, "psum": psum}
        given |= {"gather": lambda x: jnp.moveaxis(gather(jnp.moveaxis(x, 1, 0)), 0, 1)}
        given |= {"artificial": lambda *shape: random(*shape, seed=5)}
        seen = alone(views(rows["views"]), **of_data | given)
        return load_loss(OBJECTIVES[name]).loss(seen, **numbers(fields))

    return compute


LOSSES = {f"{name} {number}": loss_of(name, fields) for number, (name, fields) in enumerate(CASES)}
# A negative that was left out comes back once it is farther away, and a factor of hardness has no gradient.
FALLING = [name for name, (_, fields) in zip(LOSSES, CASES, strict=True) if "hardness" not in fields]


def test_none_is_left_out():
    assert {name for name, _ in CASES} == OBJECTIVES.keys()


@pytest.mark.exact
def test_loss_and_gradient_are_the_same_on_several_devices():
    assert_sharded_is_whole(LOSSES, {name: ARRAYS[name] for name in ("views", "tokens")}, ARRAYS["kernel"])


@pytest.mark.slow
@pytest.mark.parametrize("name", FALLING)
def test_its_loss_falls_when_embeddings_follow_its_gradient(name):
    def loss(arrays):
        whole = [lambda x: x] * 2
        return LOSSES[name](arrays, arrays["kernel"], jnp.arange(ROWS), *whole)

    def step(_, arrays):
        gradient = jax.grad(loss)(arrays)
        norm = jnp.sqrt(sum(jnp.sum(part**2) for part in jax.tree.leaves(gradient)))
        return jax.tree.map(lambda x, part: x - 0.05 * part / norm, arrays, gradient)

    trained = jax.jit(lambda arrays: (loss(arrays), loss(jax.lax.fori_loop(0, 20, step, arrays))))
    before, after = trained(jax.tree.map(jnp.asarray, ARRAYS))
    assert np.isfinite(after) and after < before - 1e-3 * abs(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields", "peer", "labels"),
    [
        *(("angle", {"temperature": 0.05}, "AnglELoss", "score"), ("cosine_mse", {}, "CosineSimilarityLoss", "score")),
        *(("cosent", {"temperature": 0.05}, "CoSENTLoss", "score"), ("embedding_mse", {}, "MSELoss", "embeddings")),
        *(("margin_mse", {"similarity": name}, "MarginMSELoss", "scores") for name in ("dot", "cosine")),
        ("margin_mse", {"similarity": "dot"}, "MarginMSELoss", "margins"),
        *(("distill_kl", fields, "DistillKLDivLoss", "scores") for name, fields in CASES if name == "distill_kl"),
    ],
)
def test_is_sentence_transformers_loss(name, fields, peer, labels):
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    util = pytest.importorskip("sentence_transformers.util")
    similarity = {"dot": util.pairwise_dot_score, "cosine": util.pairwise_cos_sim}[fields.get("similarity", "dot")]
    given = {field: x or None for field, x in fields.items() if name == "distill_kl" and field != "similarity"}
    peer = getattr(losses, peer)(None, *[similarity] * (labels in ("scores", "margins")), **given)
    rows, teacher = np.moveaxis(ARRAYS["views"], 1, 0)[: 2 if labels == "score" else 4], np.moveaxis(TEACHER, 1, 0)
    tensors = [torch.tensor(x, requires_grad=True) for x in rows]
    given = {"score": torch.tensor(SCORES), "embeddings": [torch.tensor(x) for x in teacher]}
    given["scores"] = torch.stack([similarity(*map(torch.tensor, (teacher[0], other))) for other in teacher[1:]], 1)
    given["margins"] = given["scores"][:, :1] - given["scores"][:, 1:]
    expected = peer.compute_loss_from_embeddings(tensors, given[labels])
    expected.backward()

    seen = {"score": SCORES} if labels == "score" else {"teacher": named(teacher)}
    if labels == "margins":
        seen = {"score": np.float32([read_candidates([(list(row), "here")], 3) for row in given["margins"].tolist()])}
    loss = load_loss(OBJECTIVES[name]).loss
    ours = jax.value_and_grad(lambda rows: loss(alone(named(rows), **seen), **numbers(fields)))
    value, gradient = jax.jit(ours)(rows)
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)
    theirs = np.stack([tensor.grad.numpy() for tensor in tensors])
    assert np.abs(theirs).max() > 1e-3
    np.testing.assert_allclose(gradient, theirs, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fields", "peer", "given"),
    [
        ("info_nce", {"hardness": 5.0, "weighted": "own"}, "MultipleNegativesRankingLoss", "hard_negatives"),
        ("info_nce", {"hardness": 9.0, "weighted": "others"}, "MultipleNegativesRankingLoss", "in_batch_negatives"),
        ("info_nce", {"hardness": 2.0, "weighted": "all"}, "MultipleNegativesRankingLoss", "all_negatives"),
        ("info_nce", {"negatives": "both"}, "MultipleNegativesRankingLoss", ("query_to_doc", "query_to_query")),
        (
            *("info_nce", {"negatives": "all"}, "MultipleNegativesRankingLoss"),
            ("query_to_doc", "query_to_query", "doc_to_doc"),
        ),
        *(("triplet", {"margin": 0.5, "distance": name}, "TripletLoss", name) for name in ("euclidean", "cosine")),
    ],
)
def test_is_sentence_transformers_loss_of_in_batch_negatives_and_triplets(name, fields, peer, given):
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    if name == "triplet":
        metric = getattr(losses.TripletDistanceMetric, given.upper())
        theirs = losses.TripletLoss(None, metric, fields["margin"])
    else:
        more = {"directions": given} if isinstance(given, tuple) else {"hardness_mode": given}
        theirs = losses.MultipleNegativesRankingLoss(
            None, scale=2.0, hardness_strength=fields.get("hardness", 0.0), **more
        )
        fields = {"temperature": 0.5, "symmetric": False} | fields
    rows = np.moveaxis(ARRAYS["views"], 1, 0)[: 3 if name == "triplet" else 4]
    tensors = [torch.tensor(x, requires_grad=True) for x in rows]
    expected = theirs.compute_loss_from_embeddings(tensors, None)
    expected.backward()
    ours = jax.value_and_grad(lambda rows: load_loss(OBJECTIVES[name]).loss(alone(named(rows)), **numbers(fields)))
    value, gradient = jax.jit(ours)(rows)
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)
    wanted = np.stack([tensor.grad.numpy() for tensor in tensors])
    np.testing.assert_allclose(gradient, wanted, atol=1e-5 * np.abs(wanted).max())
