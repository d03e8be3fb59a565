"""The `fedrl` command."""
