"""simcse-jax merge --models A B --output DIR: the average of trained models."""

from typing import Annotated, Literal

from cyclopts import Parameter

from simcse_jax.commands.command_line import say_next
from simcse_jax.commands.verbs import Texts, verb
from simcse_jax.host.storage import local_path

Shares = Annotated[list[float], Parameter(consume_multiple=1)]


@verb
def merge(
    models: Texts, output: str, *, method: Literal["mean", "slerp"] = "mean", weights: Shares | None = None
) -> None:
    """Averages the weights of models that were trained from one base model ("model soups").

    Needs models or runs. Seeds, checkpoints of a run (RUN@step=200) or runs on different data may score higher together
    than each alone: evaluate both. Tokenizer, pooler and prompts are the first model's, and must be those of all.

    Args:
      models: Folders, workdirs, hub ids or package:NAME: at least two of one architecture; slerp takes two.
      output: The folder to write, for transformers and sentence-transformers; an earlier export there is replaced.
      method: mean, of all; or slerp, along the arc between two models' tensors.
      weights: A number for each model, in their order. By default all count the same.
    """
    from simcse_jax.runs import exporting, merging
    from simcse_jax.runs.loading import load_model

    folder = local_path(output)
    loaded = [load_model(name) for name in models]
    for model in loaded:
        exporting.check_output(folder, model.folder)
    exporting.write(merging.merge(loaded, weights or (), method), folder)
    print(f"{output}: the {method} of {len(models)} models", flush=True)
    say_next("evaluate", "--model", output, "--data", "SENTEVAL_FOLDER")
