"""One job at a time for whatever is written; readers are never held up."""
