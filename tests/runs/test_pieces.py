"""A run directory loses nothing, overwrites nothing, and says why it refuses."""

import json

import numpy as np
import pytest

from fedrl import FedrlError
from fedrl.runs.pieces import Pieces, write_atomically

SETTINGS = {"seeds": 10, "cells": {"a": {"lr": 0.1}}}


def test_a_new_folder_is_made_with_its_settings(tmp_path):
    directory = Pieces.open(tmp_path / "new" / "run", SETTINGS)
    assert json.loads((directory.path / "settings.json").read_text()) == SETTINGS


def test_the_same_settings_continue_and_pieces_come_back_in_order(tmp_path):
    directory = Pieces.open(tmp_path, SETTINGS)
    directory.save("a", 6, 10, {"x": np.arange(6, 10)})
    directory.save("a", 0, 4, {"x": np.arange(0, 4)})
    again = Pieces.open(tmp_path, SETTINGS)
    with pytest.raises(FedrlError, match="does not continue the pieces before it"):
        again.load("a", 10)
    again.save("a", 4, 6, {"x": np.arange(4, 6)})
    loaded = np.concatenate([piece["x"] for piece in again.load("a", 10)])
    assert loaded.tolist() == list(range(10))


@pytest.mark.parametrize("size", [1, 3, 100])
def test_missing_is_exactly_what_no_piece_covers(tmp_path, size):
    directory = Pieces.open(tmp_path, SETTINGS)
    for start, stop in ((2, 5), (5, 6), (9, 12)):
        directory.save("a", start, stop, {"x": np.arange(start, stop)})
    missing = list(directory.missing("a", 20, size))
    covered = [i for start, stop in missing for i in range(start, stop)]
    assert covered == [0, 1, 6, 7, 8, *range(12, 20)]
    assert all(0 < stop - start <= size for start, stop in missing)


def test_other_settings_are_refused_and_nothing_changes(tmp_path):
    Pieces.open(tmp_path, SETTINGS).save("a", 0, 1, {"x": np.zeros(1)})
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    with pytest.raises(FedrlError, match="seeds = 10, this command has seeds = 11"):
        Pieces.open(tmp_path, {**SETTINGS, "seeds": 11})
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FedrlError, match=r"not empty and has no settings\.json"):
        Pieces.open(tmp_path, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("content", [b"not json", b"[1, 2]", b"", b"\xff\xfe\x00"])
def test_a_foreign_settings_file_is_refused_and_kept(tmp_path, content):
    (tmp_path / "settings.json").write_bytes(content)
    with pytest.raises(FedrlError, match="name another folder"):
        Pieces.open(tmp_path, SETTINGS)
    assert (tmp_path / "settings.json").read_bytes() == content


def test_overlapping_pieces_are_refused_and_not_counted_twice(tmp_path):
    directory = Pieces.open(tmp_path, SETTINGS)
    for start, stop in ((0, 4), (0, 3)):
        directory.save("a", start, stop, {"x": np.arange(start, stop)})
    with pytest.raises(FedrlError, match="does not continue the pieces before it"):
        directory.load("a", 4)


def test_a_kill_during_the_very_first_write_leaves_a_usable_folder(tmp_path):
    (tmp_path / ".settings.json.abc123").write_text('{"see')
    Pieces.open(tmp_path, SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_two_processes_do_not_work_in_one_folder(tmp_path):
    with Pieces.open(tmp_path, SETTINGS).locked():
        other = Pieces.open(tmp_path, SETTINGS)
        with pytest.raises(FedrlError, match="another process is working in"), other.locked():
            pass


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FedrlError, match="cannot be written"):
        Pieces.open(tmp_path / "file" / "run", SETTINGS)
    with pytest.raises(FedrlError, match="is a file: name a folder"):
        Pieces.open(tmp_path / "file", SETTINGS)


def test_a_damaged_piece_is_named(tmp_path):
    directory = Pieces.open(tmp_path, SETTINGS)
    directory.save("a", 0, 5, {"x": np.arange(1000)})
    (piece,) = (tmp_path / "pieces" / "a").iterdir()
    piece.write_bytes(piece.read_bytes()[:-100])
    with pytest.raises(FedrlError, match=r"00000000-00000005.npz is damaged .* delete it"):
        directory.load("a", 5)


def test_a_piece_that_is_whole_and_of_something_else_is_named(tmp_path):
    directory = Pieces.open(tmp_path, SETTINGS)
    directory.save("a", 0, 5, {"x": np.arange(4)})
    with pytest.raises(FedrlError, match=r"00000000-00000005.npz is damaged: delete it"):
        directory.load("a", 5, lambda arrays, replicates: len(arrays["x"]) == replicates)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
