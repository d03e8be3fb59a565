"""Settings that have a name and are told apart by all they say."""

from hashlib import sha256


class Named:
    """What an experiment is called: by its user, and by its settings."""

    name: str

    @property
    def digest(self) -> str:
        """A short name for exactly these settings."""
        # Here, because reading TOML makes experiments and so needs their modules.
        from fedrl.experiment.toml import to_toml

        return sha256(to_toml(self).encode()).hexdigest()[:8]

    @property
    def directory_name(self) -> str:
        """What its run directory is called."""
        return f"{self.name}-{self.digest}"
