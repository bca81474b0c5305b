"""The version of the package: in a file of its own, so that reading it imports nothing else."""

__version__ = "0.2.0"
