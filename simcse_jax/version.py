"""The version of the package: in a file of its own, so that what writes it needs nothing else."""

__version__ = "0.1.0"
