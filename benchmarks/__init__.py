"""Yardsticks: the peers that our runs are compared with."""
