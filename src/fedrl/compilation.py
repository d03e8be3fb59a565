"""Compiled programs are kept on disk: the next process need not compile them again."""

import os
from pathlib import Path
from typing import Any


def use_compilation_cache(folder: Path | None = None) -> None:
    """Keep them in a folder, or in the user's cache unless the user has a place for them."""
    import jax

    settings: Any = jax.config
    if folder is None:
        if settings.jax_compilation_cache_dir is not None:
            return
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = caches / "fedrl" / "xla"
    settings.update("jax_compilation_cache_dir", str(folder))
    # Ours compile in a second each, under the limits below which JAX would not bother.
    settings.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    settings.update("jax_persistent_cache_min_entry_size_bytes", -1)
