import subprocess
import sys

BARE = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Block())
import jax
import simcse_jax.huggingface.load
from flax import nnx
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import SentenceEncoder
from simcse_jax.objectives.registry import Objective
from simcse_jax.training.loss import Recipe, make_loss
from simcse_jax.training.views import plan

config = EncoderConfig("bert", 9, 8, 1, 2, 8, 8, 2, 1e-12, "gelu", 0)
graph, params = parameters.split(SentenceEncoder(config, with_head=True, rngs=nnx.Rngs(0)))
ones = jax.numpy.ones((2, 1, 4), int)
batch = {"input_ids": ones, "attention_mask": ones, "index": jax.numpy.arange(2)}
terms = {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}
info_nce = Objective("info_nce", (("similarity", "cosine"), ("symmetric", False)))
recipe = Recipe("cls", True, *plan(1, "independent"), (info_nce,))
loss = make_loss(graph, recipe, data_mesh(jax.devices()[:1]))
settings = {"seed": 0, "dropout": 0.1, "noise": 0.0, "objective": {"info_nce": terms}}
print(jax.jit(loss)(params, 0, batch, settings)[0])
"""


def test_models_views_objectives_and_step_run_with_jax_flax_optax_and_numpy_alone():
    blocked = {"transformers", "tokenizers", "safetensors", "datasets", "tensorflow_datasets", "ml_collections", "tqdm"}
    blocked |= {"huggingface_hub", "pyarrow", "tensorboardX", "torch", "tensorflow"}
    code = BARE.replace("BLOCKED", repr(blocked))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
