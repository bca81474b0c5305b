"""The papers' training files, made from what people can download."""
