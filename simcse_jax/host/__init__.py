"""This machine, its disks and buckets: files, locks, names of outputs, progress."""
