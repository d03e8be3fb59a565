"""Tables as CSV files, written whole or not at all."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedrl.files import write_atomically


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """One line of names, then one line a row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
