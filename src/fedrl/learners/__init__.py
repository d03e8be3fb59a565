"""What one agent does between two communications."""
