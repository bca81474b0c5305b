"""python -m simcse_jax.main --config configs/unsup_bert.py --workdir DIR [--config.FIELD=VALUE …] [--profile DIR]"""

import sys

from simcse_jax.command_line import run_command


def main() -> None:
    """Parses the flags before JAX is imported, so that a misspelt field is answered at once."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    from simcse_jax.config.checks import validate
    from simcse_jax.config.flags import parse_run

    config, workdir, profile = parse_run(sys.argv[1:])
    validate(config)
    from simcse_jax.training.run import train_and_evaluate

    train_and_evaluate(config, workdir, profile)


if __name__ == "__main__":
    run_command(main)
