"""Exact float64 mathematics for many small MDPs at once."""
