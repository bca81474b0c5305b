import subprocess
import sys

from support import ROOT, call, refused

WITHOUT_JAX = "import sys; sys.modules.update(jax=None, flax=None); from simcse_jax.main import main; "
WITHOUT_JAX += "from simcse_jax.commands.command_line import run_command; run_command(main)"


def test_a_misspelt_field_is_answered_before_jax_is_imported_and_a_run_needs_a_config_and_a_workdir():
    args = ["--config=configs/unsup_bert.py", "--workdir=w", "--config.trian.epochs=1"]
    done = subprocess.run([sys.executable, "-c", WITHOUT_JAX, *args], capture_output=True, text=True, cwd=ROOT)
    refused(done, "no such field", "train.epochs")
    refused(call("train"), "--config FILE is missing")
    refused(call("train", "--config=configs/unsup_bert.py"), "--workdir DIR is missing")
    refused(call("train", "--config=configs/none.py", "--workdir=w"), "configs/none.py: no such config file")
    refused(call("train", "--config=configs/ablations/simcse_table3.py", "--workdir=w"), "simcse-jax sweep")
