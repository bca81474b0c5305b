"""The commands: each reads its options, calls rooms, and prints."""
