"""Runs that can be interrupted: what was asked for and what is done, on disk."""
