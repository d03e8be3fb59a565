"""`fedrl theory`, end to end, and what it says to bad input."""

import csv

import numpy as np
import pytest

from fedrl.cli.main import main
from fedrl.tabular.families import Doors

pytestmark = pytest.mark.usefixtures("kept", "hasty")


def read(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def matrices(tmp_path):
    P, R = Doors().matrices()
    path = tmp_path / "doors.npz"
    np.savez(path, P=P, R=R, gamma=0.9, d0=np.array([1.0, 0.0]))
    return path


def test_a_report_on_ones_own_matrices(capsys, tmp_path, matrices):
    out = tmp_path / "out"
    assert main(["theory", "--matrices", str(matrices), "--out", str(out)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "V_I(s0) = 2.025" in printed
    assert "QAvg earns 0, 2 is possible" in printed
    assert "2 environments, 2 states, 2 actions" in printed
    assert printed.endswith(f"results {out}")
    rows = {row["name"]: row for row in read(out / "statements.csv")}
    assert rows["Lemma 1"]["holds"] == "False"
    assert rows["Theorem 2, eta <= 1"]["holds"] == "True"
    assert rows["Theorem 2, unclipped"]["holds"] == "False"
    assert rows["Theorem 1"]["holds"] == "True"
    assert rows["Theorem 2, small gamma"]["holds"] == "False"
    assert rows["Theorem 3, its proof"]["holds"] == "False"
    assert rows["Theorem 3, objective"]["holds"] == ""  # neither proven nor refuted
    measures = {row["name"]: row["value"] for row in read(out / "measures.csv")}
    assert measures["best policy found"] == "8.18182"
    gaps = read(out / "gaps.csv")
    at_one = {row["algorithm"]: float(row["gap"]) for row in gaps if float(row["kappa"]) == 1}
    assert at_one["qavg"] == pytest.approx(8.181818 - 4.5, abs=1e-4)  # greedy: one door of two
    for name in ("bounds.png", "bounds.pdf", "gaps.png", "gaps.pdf", "bounds.csv"):
        assert (out / name).stat().st_size > 500


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "cannot be read (No such file or directory)"),
        (lambda path: path.write_text("text"), "cannot be read as such"),
        (lambda path: np.savez(path, P=np.ones(3)), "has no R, gamma"),
        (lambda path: np.savez(path, P=np.ones(3), R=1.0, gamma=0.9), "P must have shape"),
    ],
)
def test_bad_files_get_one_line(capsys, tmp_path, make, message):
    path = tmp_path / "bad.npz"
    make(path)
    assert main(["theory", "--matrices", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("R", "gamma"), [(np.ones((2, 2)), 0.9), (np.eye(2), 0.0)])
def test_problems_without_a_question_are_refused(capsys, tmp_path, R, gamma):
    path = tmp_path / "flat.npz"
    np.savez(path, P=Doors().matrices()[0], R=R, gamma=gamma)
    assert main(["theory", "--matrices", str(path)]) == 2
    assert "R must not be constant and gamma must be positive" in capsys.readouterr().err


def test_bad_names_and_contradictions(capsys, matrices):
    assert main(["theory", "--family", "dors"]) == 2
    assert "unknown family 'dors': did you mean 'doors'?" in capsys.readouterr().err
    assert main(["theory", "--family", "doors", "--matrices", str(matrices)]) == 2
    assert "exclude each other" in capsys.readouterr().err
