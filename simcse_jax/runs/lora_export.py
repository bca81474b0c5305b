"""A run's LoRA as a folder of PEFT's."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.host.names import split_step
from simcse_jax.host.storage import Folder, local_path
from simcse_jax.huggingface.hub import split_name
from simcse_jax.huggingface.peft import BASE, write_adapter
from simcse_jax.huggingface.public_names import is_from_hub, public_value
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.models import parameters
from simcse_jax.models.lora import lora_of
from simcse_jax.runs.loading import choose_step, open_checkpoints, trained_config
from simcse_jax.runs.run_files import KEPT, MODULES
from simcse_jax.runs.state import FINGERPRINT, add_parts, model_spec, split_shapes
from simcse_jax.runs.workdir import Workdir

CARD = """---
base_model: {base}
library_name: peft
---

LoRA for `{base}`: rank {rank}, α {alpha:g}. Open it with

```python
from peft import AutoPeftModelForFeatureExtraction

model = AutoPeftModelForFeatureExtraction.from_pretrained("this folder")
```

An embedding is what the pooler `{pooler}` makes of the last hidden states{around}.{more}
"""


def check_adapter(run: dict[str, Any], where: str) -> None:
    """Refuses a run whose model has more than its base and LoRA."""
    spec = model_spec(run["config"])
    if not spec.lora:
        raise UserError(f"{where}: has no LoRA (its model.lora.rank is 0); leave out --adapter")
    reasons = {
        "a head": spec.head.scored,
        "modules after its pooler": bool(run["model"].get(MODULES)),
        "convolutions": bool(spec.convolutions),
        f"the first {spec.num_layers} layers of its base alone": spec.num_layers > 0,
    }
    for part, holds in reasons.items():
        if holds:
            raise UserError(f"{where}: its model has {part}, which is not in an adapter; leave out --adapter")


def adapter_writer(folder: Folder, step: int | str | None = None) -> Callable[[Path], None]:
    """Reads the LoRA of a run's checkpoint; returns a function that writes it into an empty folder.

    A head of masked words that was trained with it is left out, with a message: no embedding depends on it.
    """
    workdir = Workdir(folder)
    run = workdir.read_run()
    check_adapter(run, str(folder))
    fields, spec = run["config"]["model"], model_spec(run["config"])
    encoder = add_parts(trained_config(folder, run), spec)
    with open_checkpoints(folder) as checkpoints:
        chosen = choose_step(checkpoints, workdir, step)
        trained = checkpoints.restore_params(chosen, split_shapes(encoder, spec)[0])
        weights = parameters.sentence_encoder(trained, checkpoints.tower(chosen))
    for name, value in weights.items():
        if not np.isfinite(np.asarray(value)).all():
            raise UserError(f"{folder}: {name} of the checkpoint of step {chosen} is not finite; it is not exported")
    if any(name.startswith(parameters.LANGUAGE_MODEL) for name in trained):
        print(f"{folder}: its head of masked words is left out; an export without --adapter has it", flush=True)
    (base, revision), sha = base_for_peft(fields["init_from"], run["hub"]), run["sha256"].get(FINGERPRINT, "")
    settings = lora_of(encoder)
    name = public_value("model.init_from", fields["init_from"], run["hub"])
    around = f" of a sentence in the place of [X] in `{text}`" if (text := spec.template) else ""
    more = " It has unit length." if run["model"].get(KEPT, {}).get("normalize") else ""
    prompts = {role: text for role, text in run["model"].get("prompts", {}).items() if text}
    if prompts:
        more += "\n\nTexts put before sentences:\n\n" + "\n".join(
            f"- {role}: `{json.dumps(text, ensure_ascii=False)}`" for role, text in prompts.items()
        )
    card = CARD.format(
        base=name, pooler=spec.scored_pooler, rank=settings.rank, alpha=settings.alpha, around=around, more=more
    )

    def write(target: Path) -> None:
        write_adapter(
            weights, encoder, target, base=base, revision=revision, sha=sha, dropout=fields["lora"]["dropout"]
        )
        (target / "README.md").write_text(card, encoding="utf-8")

    return write


def base_for_peft(name: str, from_hub: Collection[str] | None) -> tuple[str, str | None]:
    """A run's base as transformers opens it: its name or folder, and the revision on the hub."""
    if name.startswith("package:"):
        return str(resolve(name)), None
    if is_from_hub("model.init_from", name, from_hub) and (parts := split_name(name)) is not None:
        return parts
    folder = local_path(split_step(name).name)
    if (folder / "run.json").is_file():
        print(f"{name} is a run: before PEFT opens its base, export it and write that folder as {BASE}", flush=True)
    return (str(folder.absolute()) if folder.exists() else name), None
