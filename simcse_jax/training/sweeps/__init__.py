"""Sweeps: many runs that differ in a few fields, and the table that sums them up."""
