"""What a program costs on hardware that need not be there."""
