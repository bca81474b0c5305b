"""The tests' type checker, which checks every call. It accepts an int as a float, like a static one."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
