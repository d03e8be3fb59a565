"""What `import fedrl` does, and does not."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import fedrl


def run_python(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_importing_the_package_loads_none_of_the_heavy_libraries():
    program = """
import sys, fedrl
print([name for name in ("jax", "numpy", "matplotlib", "rich", "tyro") if name in sys.modules])
"""
    assert run_python(program).strip() == "[]"


def test_using_the_tables_does_not_start_a_device_or_change_precision():
    program = """
import fedrl, jax
fedrl.tabular, fedrl.families
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized(), jax.config.jax_enable_x64)
"""
    assert run_python(program).strip() == "False False"


def test_running_leaves_the_callers_precision_alone():
    program = """
import fedrl, jax.numpy as jnp
fedrl.tabular.run("qavg", [[[[1.0]]]], [[1.0]], gamma=0.5, iterations=2, lr=0.1)
print(jnp.ones(1).dtype)
"""
    assert run_python(program).strip() == "float32"


def test_unknown_attributes_are_an_ordinary_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'tabluar'"):
        fedrl.tabluar  # noqa: B018


def test_the_version_is_that_of_the_installed_package():
    assert metadata.version("fedrl") == fedrl.__version__


def test_examples_in_docstrings_work():
    import doctest

    import fedrl.tabular.api

    for module in (fedrl, fedrl.tabular.api):
        assert doctest.testmod(module).failed == 0
        assert doctest.testmod(module).attempted > 0


def test_every_module_that_the_architecture_names_is_there():
    root = Path(__file__).parents[1]
    named = set(re.findall(r"[\w/]+\.py\b", (root / "ARCHITECTURE.md").read_text()))
    modules = [f"/{path.relative_to(root)}" for path in root.rglob("*/*.py")]
    assert {name for name in named if not any(m.endswith(f"/{name}") for m in modules)} == set()
    assert len(named) > 20
