"""The type checker of the tests: it looks at every call. An int is a float to it, as to a static one."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
