"""The costs of a program on hardware that need not be present."""
