"""The linear maps of a layer as transformers' classes name them, and so PEFT."""

from collections.abc import Sequence

from simcse_jax.errors import UserError, nearest
from simcse_jax.huggingface.name_tables import NAMES
from simcse_jax.models.config import EncoderConfig, Site
from simcse_jax.models.lora import PARTS

ALL = "all-linear"  # stands for all maps


def linear_maps(model_type: str) -> dict[str, Site]:
    """Each linear map of a layer, by the name of its module within the layer."""
    names = NAMES[model_type].modules or NAMES[model_type].layer
    return {module: Site(part, index, len(names[part])) for part in PARTS for index, module in enumerate(names[part])}


def module_of(model_type: str, group: int, site: Site) -> str:
    """The name of a linear map's module in transformers' class of the encoder."""
    names = NAMES[model_type]
    part = (names.modules or names.layer)[site.part][site.index]
    return f"{(names.module_stack or names.stack).format(group)}.{part}"


def sites(encoder: EncoderConfig, targets: Sequence[str], field: str) -> tuple[Site, ...]:
    """The linear maps that are called by the last parts of their modules' names, as in PEFT's `target_modules`.

    Args:
      targets: names; `ALL` stands for all maps, and none at all for those of queries and values.
    """
    maps = linear_maps(encoder.model_type)
    if not targets:
        return tuple(site for site in maps.values() if site.part == "qkv" and site.index != 1)
    known = [end for module in maps for end in _ends(module)]
    for target in targets:
        if target not in (*known, ALL):
            raise UserError(
                f"{field}: {target!r:.60} is no linear map of a layer of the type {encoder.model_type}; the nearest "
                f"one is {nearest(target, known)}; there are {', '.join(maps)}"
            )
    return tuple(
        site for module, site in maps.items() if any(target == ALL or target in _ends(module) for target in targets)
    )


def _ends(module: str) -> list[str]:
    """A name, and what is left of it without its first parts."""
    parts = module.split(".")
    return [".".join(parts[first:]) for first in range(len(parts))]
