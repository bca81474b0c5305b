"""A folder of embeddings of many files, made a block of rows at a time, by any number of processes."""
