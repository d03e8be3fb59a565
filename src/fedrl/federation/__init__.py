"""Rounds: local updates, average, send back."""
