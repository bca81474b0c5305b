import xml.etree.ElementTree as ElementTree

import numpy as np

from simcse_jax.evaluation import geometry
from simcse_jax.evaluation.sts import Pairs


def measured(seed: int) -> geometry.Geometry:
    rows = np.random.default_rng(seed).normal(size=(40, 5)) + 0.5
    gold = np.linspace(0, 5, 20)
    return geometry.measure(
        lambda sentences: np.array([rows[int(sentence)] for sentence in sentences]),
        Pairs([str(n) for n in range(20)], [str(n) for n in range(20, 40)], gold, {}),
    )


def texts(svg: bytes) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
