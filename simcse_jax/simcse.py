"""The class that people use a trained model with."""

from collections.abc import Sequence

import jax
import numpy as np

from simcse_jax.encoding import make_encode
from simcse_jax.errors import UserError
from simcse_jax.loading import choose_pooler, load_model
from simcse_jax.models import huggingface
from simcse_jax.models.config import POOLERS
from simcse_jax.models.tokenizer import Tokenizer


class SimCSE:
    """A sentence encoder: `SimCSE("runs/my-run").encode(["A sentence.", "Another one."])`."""

    def __init__(self, name: str, *, pooler: str | None = None, num_layers: int = 0, batch_size: int = 64):
        """Loads a model.

        Args:
          name: a folder in Hugging Face format, a hub id, `package:NAME`, or a workdir of ours.
          pooler: None takes the model's own.
          num_layers: keep the first n layers; 0 keeps all.
          batch_size: sentences encoded together.

        Raises:
          UserError: in one line, for whatever is wrong with it.
        """
        if pooler is not None and pooler not in POOLERS:
            raise UserError(f"pooler {pooler!r} is not one of {', '.join(POOLERS)}")
        model = load_model(name, num_layers)
        self.pooler, self.use_head = choose_pooler(model, pooler)
        self.config = model.config
        graph, _ = huggingface.build(model.config, with_head="head.kernel" in model.params)
        self._params = jax.device_put(model.params)
        self._encode = make_encode(
            graph,
            Tokenizer(model.folder, model.config),
            pooler=self.pooler,
            use_head=self.use_head,
            max_length=model.max_length,
            batch_size=batch_size,
        )

    def encode(self, sentences: str | Sequence[str]) -> np.ndarray:
        """(N, D) float32 embeddings in the order given, not normalized; one string gives (D,)."""
        if isinstance(sentences, str):
            return self._encode(self._params, [sentences])[0]
        return self._encode(self._params, sentences)
