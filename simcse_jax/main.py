"""python -m simcse_jax.main --config configs/unsup_bert.py --workdir DIR [--config.FIELD=VALUE …] [--profile DIR]"""

import sys

from simcse_jax.errors import run_command


def main() -> None:
    """Parses the flags before JAX is imported, so that a misspelt field is answered at once."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    from simcse_jax import config as config_lib

    config, workdir, profile = config_lib.parse_run(sys.argv[1:])
    config_lib.validate(config)
    from simcse_jax.train import train_and_evaluate

    train_and_evaluate(config, workdir, profile)


if __name__ == "__main__":
    run_command(main)
