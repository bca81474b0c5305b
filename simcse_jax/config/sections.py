"""A config as the rooms read it: frozen sections, whose fields are attributes. They are made of a ConfigDict, once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ml_collections import config_dict


@dataclass(frozen=True, eq=False, repr=False)
class Section(Mapping[str, Any]):
    """The fields of a section and the sections in it: `config.train.batch_size`, or `config["train.batch_size"]`.

    `checks.validate` makes one of a whole config, whose names and types are then those of `FIELDS`. It can be neither
    changed nor extended, and is equal to every other one with the same values.
    """

    _fields: Mapping[str, Any]

    @classmethod
    def of(cls, config: "Config | Mapping[str, Any]") -> "Section":
        """A frozen copy of a ConfigDict, whose references are followed, or of nested dictionaries; lists are tuples."""

        def frozen(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return tuple(map(frozen, value))
            return cls.of(value) if is_section(value) else value

        return cls({name: frozen(value) for name, value in config.items()})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for while it is copied and has no fields yet
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"no field {name}") from None

    def __getitem__(self, name: str) -> Any:
        value: Any = self
        for part in name.split(".") if isinstance(name, str) else (name,):
            if not isinstance(value, Section) or part not in value._fields:
                raise KeyError(name)
            value = value._fields[part]
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __hash__(self) -> int:
        return hash(frozenset(self._fields.items()))

    def __repr__(self) -> str:
        return repr(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The same as nested dictionaries."""

        def plain(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(plain, value))
            return value.to_dict() if isinstance(value, Section) else value

        return {name: plain(value) for name, value in self.items()}

    def replaced(self, name: str, value: Any) -> "Section":
        """The same with another value of the field of this dotted name."""
        _ = self[name]  # it is there
        first, dot, rest = name.partition(".")
        return Section({**self._fields, first: self._fields[first].replaced(rest, value) if dot else value})


Config: TypeAlias = config_dict.ConfigDict | Section  # as users write it, or as it is after the checks


def is_section(value: object) -> bool:
    """Whether a value of a config is a section of it, and not a field."""
    return isinstance(value, Mapping | config_dict.ConfigDict)
