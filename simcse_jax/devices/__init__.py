"""Devices and processes: the mesh, placing and fetching, processes that run together, preemption, compilation."""
