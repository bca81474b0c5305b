"""Adapters for other libraries: a file for each, with that library's own class around `SimCSE`."""
