"""Damage to a run directory is refused in one sentence, by every command that reads it."""

import errno
import json
import os
import shutil
import zipfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import fedrl
from fedrl import FedrlError
from fedrl.cli.main import main
from fedrl.experiment.settings import from_toml
from fedrl.experiment.toml import to_toml
from fedrl.files import read_arrays, write_arrays, write_atomically
from fedrl.progress import Silence
from fedrl.runs import about as about_it
from fedrl.runs import driver
from fedrl.runs.about import about
from fedrl.runs.run_directory import RunDirectory
from tiny import TINY, Died, DiesAfter, results

pytestmark = pytest.mark.usefixtures("kept", "hasty")


@pytest.fixture(scope="module")
def finished(kept, hasty, tmp_path_factory):
    return fedrl.train(TINY, out=tmp_path_factory.mktemp("runs"), progress=False).path


@pytest.fixture
def path(finished, tmp_path):
    """A copy of a finished run."""
    return Path(shutil.copytree(finished, tmp_path / finished.name))


@pytest.fixture
def begun(tmp_path):
    """A run whose process died."""
    directory = RunDirectory.create(tmp_path, TINY)
    with pytest.raises(Died):
        driver.carry_out(directory, DiesAfter(5))
    return directory.path


def said(capsys, *command):
    """What a command that fails says: one sentence, and nothing of Python."""
    assert main([str(part) for part in command]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedrl: ")
    assert "pickle" not in line
    assert "Error" not in line
    return line


def without_line(file):
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))


def flipped(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def halved(file):
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


DAMAGE = [without_line, flipped, halved, Path.unlink, lambda file: file.write_bytes(b"")]


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_metrics_are_not_reported(path, damage, capsys):
    damage(path / "metrics.csv")
    line = said(capsys, "report", path)
    assert f"{path}/metrics.csv is missing, damaged or edited" in line


@pytest.mark.parametrize("damage", [flipped, halved, lambda file: file.write_bytes(b"")])
def test_damaged_models_are_not_evaluated(path, damage, capsys):
    damage(path / "models.npz")
    line = said(capsys, "evaluate", path, "--theta", "1")
    assert f"{path}/models.npz is missing, damaged or edited" in line


def test_checksums_are_those_that_other_programs_compute(path):
    sums = dict(line.split("  ")[::-1] for line in (path / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == {"experiment.toml", "metrics.csv", "models.npz"}
    for name, found in sums.items():
        assert sha256((path / name).read_bytes()).hexdigest() == found


@pytest.mark.parametrize("damage", [without_line, halved, lambda file: file.write_bytes(b"")])
def test_damaged_checksums_do_not_switch_the_check_off(path, damage, capsys):
    damage(path / "SHA256SUMS")
    assert "SHA256SUMS is damaged" in said(capsys, "report", path)


def test_a_finished_run_is_not_reported_under_settings_that_it_did_not_have(path, capsys):
    file = path / "experiment.toml"
    file.write_text(file.read_text().replace("E = 10", "E = 20"))
    assert "is not what this run began with" in said(capsys, "report", path)


def reshaped(arrays):
    name = next(iter(arrays))
    return arrays | {name: np.repeat(arrays[name], 2, axis=-1)}


def of_other_numbers(arrays):
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def with_too_few_seeds(arrays):
    return {name: array[:1] for name, array in arrays.items()}


def without_one(arrays):
    return dict(list(arrays.items())[1:])


def flat(arrays):
    return {name: np.float32(0) for name in arrays}


@pytest.mark.parametrize(
    "change", [reshaped, of_other_numbers, with_too_few_seeds, without_one, flat]
)
def test_models_of_another_shape_are_not_evaluated(path, change, capsys):
    (path / "SHA256SUMS").unlink()  # as in runs of early versions
    write_arrays(path / "models.npz", change(read_arrays(path / "models.npz")))
    line = said(capsys, "evaluate", path, "--theta", "1")
    assert "its arrays are not those of this experiment" in line


def pickled(file):
    np.savez(file, x=np.array([{}], dtype=object))


def compressed(file):
    np.savez_compressed(file, x=np.zeros(10**7, np.float32))


def overlapping(file):
    """A zip archive in which many names are the same bytes: large inside, small outside."""
    np.savez(file, x=np.zeros(1000, np.float32))
    with zipfile.ZipFile(file, "a") as archive:
        (member,) = archive.infolist()
        archive.filelist.extend([member] * 100)
        archive._didModify = True


def one_array(file):
    with file.open("wb") as stream:
        np.save(stream, np.zeros(3))


@pytest.mark.parametrize("write", [pickled, compressed, overlapping, one_array])
def test_arrays_that_we_did_not_write_are_refused_without_advice(write, tmp_path):
    file = tmp_path / "arrays.npz"
    write(file)
    with pytest.raises(FedrlError) as refused:
        read_arrays(file)
    assert str(refused.value) == f"{file} is damaged or not written by fedrl"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name = '\xff'", "not text in UTF-8"),
        (b"x = " + b"[" * 100_000, "nested too deeply"),
        (b"agents = " + b"9" * 5000, "a number is too long"),
        (b"agents = 0x" + b"f" * 5000, "thousands of digits"),
        (b"x = '" + b"x" * (1 << 20) + b"'", "longer than"),
        (b"agents = 3", "name is missing"),
        (b"", "is missing"),
    ],
)
@pytest.mark.parametrize("command", ["run", "resume"])
def test_settings_that_are_none_are_refused_in_one_sentence(
    content, message, command, tmp_path, capsys
):
    file = tmp_path / "experiment.toml"
    file.write_bytes(content)
    if b"agents" in content and b"3" not in content:
        rest = b'\nname = "x"\nfamily.kind = "cartpoles"\nlearner.kind = "dqn"\n'
        file.write_bytes(content + rest)
    assert message in said(capsys, command, file if command == "run" else tmp_path)


def test_metrics_of_an_unfinished_run_that_are_no_table_are_refused(begun, capsys):
    newest = sorted((begun / "metrics").iterdir())[-1]
    whole = newest.read_bytes()
    for content in (whole[:-3], b"", b"0,0,0,aver", b"\xff\xfe", b"0,zero\n", whole + b"1,2" * 9):
        newest.write_bytes(content)
        assert "damaged" in said(capsys, "report", begun)


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b"[" * 100_000, b"\xff"])
def test_a_missing_or_damaged_about_json_is_called_so(begun, content, capsys):
    (begun / "about.json").unlink()
    if content is not None:
        (begun / "about.json").write_bytes(content)
    assert "about.json is missing or damaged" in said(capsys, "resume", begun)
    assert not fedrl.Run(begun).finished


class Hears(Silence):
    def __init__(self):
        self.warnings = []

    def warn(self, text):
        self.warnings.append(text)


def began_with(path, **changed):
    file = path / "about.json"
    then = json.loads(file.read_text())
    then["versions"] |= changed.pop("versions", {})
    file.write_text(json.dumps(then | changed))


@pytest.mark.parametrize("name", ["fedrl", "jax", "jaxlib"])
def test_a_run_on_a_cpu_does_not_go_on_with_another_version(begun, name, capsys):
    began_with(begun, versions={name: "0.0.7"})
    line = said(capsys, "resume", begun)
    assert f"began with {name} 0.0.7, and here is {name} {about()['versions'][name]}" in line


def test_a_change_that_breaks_no_promise_is_said(begun, finished):
    began_with(begun, versions={"numpy": "1.0"})
    watcher = Hears()
    driver.carry_out(RunDirectory.open(begun), watcher)
    numpy = about()["versions"]["numpy"]
    assert watcher.warnings == [f"numpy is {numpy} now and was 1.0 when this run began"]
    assert results(begun) == results(finished)


def test_on_another_device_other_versions_are_said(begun, monkeypatch):
    began_with(begun, versions={"jax": "0.0.7"}, platform="gpu")
    watcher = Hears()
    driver.carry_out(RunDirectory.open(begun), watcher)
    assert [warning.split()[0] for warning in watcher.warnings] == ["jax", "platform"]
    assert fedrl.Run(begun).finished


def test_only_a_cpu_promises_bits():
    assert about_it.promises_bits(about(), about())
    assert not about_it.promises_bits(about() | {"platform": "gpu"}, about() | {"platform": "gpu"})
    assert not about_it.promises_bits(about() | {"machine": "riscv"}, about())


def test_a_full_disk_says_for_which_file_it_has_no_space(tmp_path, monkeypatch, capsys):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        write_atomically(tmp_path / "file", b"content")
    assert raised.value.filename == str(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_settings_that_json_and_toml_can_hold_and_arrays_cannot_are_refused():
    text = to_toml(TINY).replace("time_limit = 20", f"time_limit = {10**400}")
    with pytest.raises(FedrlError, match="time_limit must be"):
        from_toml(text)
    text = to_toml(TINY).replace("gamma = 0.9", f"gamma = {10**400}")
    with pytest.raises(FedrlError, match="gamma must be"):
        from_toml(text)
