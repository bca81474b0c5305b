"""simcse-jax export --workdir DIR --output FOLDER: a model for transformers and sentence-transformers."""

from simcse_jax.commands.command_line import invocation
from simcse_jax.commands.verbs import Count, Names, verb
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_step
from simcse_jax.host.outputs import printing
from simcse_jax.host.storage import local_path


@verb
def export(
    workdir: str,
    output: str,
    *,
    adapter: bool = False,
    truncate_dim: Count | None = None,
    license: str | None = None,
    base_model: str | None = None,
    language: Names = (),
    push_to_hub: str | None = None,
    private: bool = False,
    revision: str | None = None,
) -> None:
    """Exports a trained model for transformers and sentence-transformers.

    Needs the folder of a run. Writes the model, its tokenizer and its model card to the output.

    Args:
      workdir: A run's folder, whose best checkpoint is exported; DIR@step=200 exports that one.
      output: The folder to write; an earlier export there is replaced.
      adapter: Write LoRA alone, as a folder for PEFT, with a card of its own; by default it is merged.
      truncate_dim: The model's embeddings keep so many of their elements, wherever it is used. By default all.
      license: For the model card: the hub's name of a licence, e.g. apache-2.0. By default the base model's, if known.
      base_model: For the model card: the hub's name of the model that training started from. By default the run's, if
        it came from the hub.
      language: For the model card: the languages, such as en de. By default none are named.
      push_to_hub: Upload it to this model of the hub, OWNER/NAME.
      private: Of the upload: only you and your organization see it.
      revision: Of the upload: the branch. By default main.
    """
    from simcse_jax.host.storage import as_path
    from simcse_jax.huggingface import hub
    from simcse_jax.runs import exporting
    from simcse_jax.runs.card_fields import card_fields

    for option, value in {"--push-to-hub": push_to_hub, "--truncate-dim": truncate_dim}.items():
        if adapter and value is not None:
            raise UserError(f"{option}: is for a whole model; leave out --adapter")
    fields = card_fields(license=license, base_model=base_model, language=",".join(language) or None)
    name, step = split_step(workdir)
    run, folder = as_path(name), local_path(output)
    exporting.check_places(run, folder)
    if push_to_hub is not None:
        hub.check_push(push_to_hub, private, revision)
    if adapter:
        exporting.export_adapter(run, folder, step)
        print(f"exported to {output}; open it with")
        print(f"  peft.AutoPeftModelForFeatureExtraction.from_pretrained({output!r})")
        print("  --config.model.lora.init_from, which trains it further", flush=True)
        return
    exporting.export(run, folder, push_to_hub, revision, fields, step, truncate_dim)
    with printing(push_to_hub is not None) as say:
        say(f"exported to {output}; open it with")
        say(f"  sentence_transformers.SentenceTransformer({output!r})")
        if (folder / "config.json").is_file():  # word vectors are no model of transformers
            say(f"  transformers.AutoModel.from_pretrained({output!r})")
        say(f"  {invocation('evaluate')} --model {output} --data SENTEVAL_FOLDER")
        if push_to_hub is not None:
            say(f"pushed: {hub.push(folder, push_to_hub, private, revision)}")
