"""python -m simcse_jax.export --workdir DIR --output FOLDER: a model for transformers and sentence-transformers."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simcse_jax.command_line import Parser, run_command
from simcse_jax.errors import UserError
from simcse_jax.huggingface import hub
from simcse_jax.storage import local_path

if TYPE_CHECKING:
    from simcse_jax.huggingface.load import Pretrained
    from simcse_jax.storage import Folder

ARCHITECTURES = {"bert": "BertModel", "roberta": "RobertaModel", "mpnet": "MPNetModel"}
SENTENCE_TRANSFORMERS = "sentence_transformers.models"  # module names that all its versions read
PLACES = ("_name_or_path", "name_or_path", "tokenizer_file", "vocab_file", "merges_file", "special_tokens_map_file")


def main() -> None:
    """The command."""
    parser = Parser(
        prog="simcse_jax.export",
        description="Writes a trained model in Hugging Face format, with a model card. Needs the folder of a run.",
    )
    parser.add_argument("--workdir", required=True, help="a run's folder; its best checkpoint is exported")
    parser.add_argument("--output", required=True, help="the folder to write; an earlier export there is replaced")
    parser.add_argument("--push-to-hub", metavar="OWNER/NAME", help="upload it to this model of the hub")
    parser.add_argument("--private", action="store_true", help="with --push-to-hub: nobody else may see it")
    parser.add_argument("--revision", help="with --push-to-hub: the branch (default: main)")
    args = parser.parse_args()
    if args.push_to_hub is None and (args.private or args.revision is not None):
        raise UserError(
            f"--{'private' if args.private else 'revision'}: says how to push; add --push-to-hub OWNER/NAME"
        )
    from simcse_jax.storage import as_path

    workdir, output = as_path(args.workdir), local_path(args.output)
    check_places(workdir, output)
    if args.push_to_hub is not None:
        hub.check_push(args.push_to_hub, args.private, args.revision)
    export(workdir, output, args.push_to_hub, args.revision)
    print(f"exported to {args.output}; open it with")
    print(f"  sentence_transformers.SentenceTransformer({args.output!r})")
    print(f"  transformers.AutoModel.from_pretrained({args.output!r})")
    print(f"  python -m simcse_jax.evaluate --model {args.output} --data SENTEVAL_FOLDER")
    if args.push_to_hub is not None:
        print(f"pushed: {hub.push(output, args.push_to_hub, args.private, args.revision)}")


def check_places(workdir: "Folder", output: Path) -> None:
    """Refuses folders that cannot be exported from or to.

    Raises:
      UserError: when there is no run, or `output` is something else than an earlier export.
    """
    from simcse_jax.huggingface.tokenizer import MARKER
    from simcse_jax.runs.workdir import is_workdir
    from simcse_jax.storage import is_remote

    if not is_workdir(workdir):
        raise UserError(f"--workdir {workdir}: no run.json there, so it is no run's folder")
    if not is_remote(workdir) and output.resolve() == (workdir / "model").resolve():
        raise UserError(f"--output {output}: the run's own folder; choose another one")
    if output.exists() and not (output.is_dir() and ((output / MARKER).is_file() or not any(output.iterdir()))):
        raise UserError(f"--output {output}: exists and is no earlier export; remove it or choose another folder")


def export(workdir: "Folder", output: Path, hub_name: str | None = None, revision: str | None = None) -> None:
    """Writes the best checkpoint of `workdir` to the folder `output`, whole or not at all.

    The head, where it belongs to the model at test time, becomes the pooler's dense layer (as in the
    reference's conversion) and sentence-transformers' dense module.

    Args:
      workdir: a run's folder.
      output: a new folder, an empty one, or that of an earlier export, which is replaced.
      hub_name: OWNER/NAME, by which the model card is to load it; None for the folder's own name.
      revision: the branch there, None for the main one.

    Raises:
      UserError: when there is no run, or `output` is something else than an earlier export.
    """
    from safetensors import SafetensorError

    from simcse_jax.model_card import model_card
    from simcse_jax.runs.loading import load_workdir
    from simcse_jax.storage import read_json

    check_places(workdir, output)
    model = load_workdir(workdir)
    result = read_json(workdir / "result.json") if (workdir / "result.json").is_file() else None
    output = output.resolve()  # a link stays one, what it points to is replaced
    card = model_card(model, read_json(workdir / "run.json"), result, hub_name or output.name, revision)
    temporary = output.parent / f".{output.name}.new"
    earlier = output.parent / f".{output.name}.old"
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        for leftover in (temporary, earlier if output.exists() else None):  # of an export that was killed
            if leftover:
                shutil.rmtree(leftover, ignore_errors=True)
        temporary.mkdir()
        write_model(model, temporary)
        (temporary / "README.md").write_text(card, encoding="utf-8")
        if output.exists():
            os.rename(output, earlier)
        os.rename(temporary, output)
        shutil.rmtree(earlier, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if earlier.exists() and not output.exists():
            os.rename(earlier, output)
        raise UserError(f"--output {output}: cannot be written: {getattr(error, 'strerror', None) or error}") from None


def write_model(model: "Pretrained", folder: Path) -> None:
    """Writes a `Pretrained` model's files into an empty folder."""
    from simcse_jax.huggingface.names import to_tensors
    from simcse_jax.huggingface.tokenizer import Tokenizer
    from simcse_jax.huggingface.write import write_encoder_files
    from simcse_jax.storage import write_json

    has_head = model.has_head
    fields_of_config = {"architectures": [ARCHITECTURES[model.config.model_type]]}
    modules = [("", "Transformer", {}, {})]
    layers = layer_weights(model.pooler, model.config.num_layers)
    size = model.config.hidden_size
    if layers is not None:
        fields_of_config["output_hidden_states"] = True
        fields = {"word_embedding_dimension": size, "layer_start": 0, "num_hidden_layers": model.config.num_layers}
        modules.append(("1_WeightedLayerPooling", "WeightedLayerPooling", fields, {"layer_weights": layers}))
    first_token = model.pooler in ("cls", "cls_before_pooler")
    pooling = {
        "word_embedding_dimension": size,
        "pooling_mode_cls_token": first_token,
        "pooling_mode_mean_tokens": model.pooler.startswith("avg"),
        "pooling_mode_max_tokens": model.pooler == "max",
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    modules.append((f"{len(modules)}_Pooling", "Pooling", pooling, {}))
    tensors = to_tensors(model.params, model.config.model_type)
    if has_head:
        dense = {f"linear.{part}": tensors[f"pooler.dense.{part}"] for part in ("weight", "bias")}
        fields = {"in_features": size, "out_features": size, "bias": True}
        fields["activation_function"] = "torch.nn.modules.activation.Tanh"
        modules.append((f"{len(modules)}_Dense", "Dense", fields, dense))
    for path, _, fields, weights in modules[1:]:
        (folder / path).mkdir()
        write_json(folder / path / "config.json", fields)
        if weights:
            write_safetensors(folder / path / "model.safetensors", weights)
    listing = [
        {"idx": index, "name": str(index), "path": path, "type": f"{SENTENCE_TRANSFORMERS}.{kind}"}
        for index, (path, kind, _, _) in enumerate(modules)
    ]
    write_json(folder / "modules.json", listing)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": model.max_length, "do_lower_case": False})
    write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    tokenizer = Tokenizer(model.folder, model.config)
    write_encoder_files(model, tokenizer, folder, model.pooler, has_head, **fields_of_config)
    forget_places(folder)
    write_safetensors(folder / "model.safetensors", tensors)


def forget_places(folder: Path) -> None:
    """Takes out where the model that was trained lay: transformers writes it into what it saves."""
    from simcse_jax.storage import read_json, write_json

    for path in (folder / "config.json", folder / "tokenizer_config.json"):
        if path.is_file():
            content = read_json(path)
            kept = {field: value for field, value in content.items() if field not in PLACES}
            if kept != content:
                write_json(path, kept)


def layer_weights(pooler: str, num_layers: int) -> np.ndarray | None:
    """(L + 1,) weights of the hidden states, for the poolers that average layers; None for the others."""
    averaged = {"avg_top2": (num_layers - 1, num_layers), "avg_first_last": (1, num_layers)}.get(pooler)
    if averaged is None:
        return None
    weights = np.zeros(num_layers + 1, np.float32)
    for layer in averaged:
        weights[layer] += 1
    return weights


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """With the mark that transformers asks for."""
    from safetensors.numpy import save

    path.write_bytes(save(tensors, metadata={"format": "pt"}))  # `save_file` would make it the owner's alone


if __name__ == "__main__":
    run_command(main)
