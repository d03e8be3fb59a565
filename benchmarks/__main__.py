"""All benchmarks side by side: `python -m benchmarks`, or `make bench`.

Every contestant runs in a process of its own, in turn and repeated. What is known is kept after
each, so that an interrupted run goes on where it stopped. Ends with one table; the exit status is 1
when a contestant failed, results differed or one of ours needed more memory than it may.
"""

import argparse
import signal
import sys
from pathlib import Path

from benchmarks import harness, summary, table
from benchmarks.case import Case, Python
from benchmarks.catalogue import Settings, cases
from benchmarks.machine import describe


def interpreters(torch: Path, jax: Path) -> dict[Python, str]:
    """Those that are there."""
    found: dict[Python, str] = {"ours": sys.executable}
    if torch.exists():
        found["torch"] = str(torch.absolute())
    if jax.exists():
        found["jax"] = str(jax.absolute())
    return found


def chosen(all_cases: list[Case], only: list[str]) -> list[Case]:
    """Cases whose name has one of the words."""
    found = [case for case in all_cases if not only or any(word in case.name for word in only)]
    if not found:
        raise SystemExit(f"no case is called so; there are: {', '.join(c.name for c in all_cases)}")
    return found


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], help="parts of names of cases")
    parser.add_argument("--full", action="store_true", help="more rows, contestants and repeats")
    parser.add_argument("--seconds", type=float, default=Settings.seconds, help="of each clock")
    parser.add_argument("--repeats", type=int, help="of every case")
    parser.add_argument("--json", type=Path, default=Path("results/bench.json"))
    parser.add_argument("--fresh", action="store_true", help="forget what the file has")
    parser.add_argument("--peers-python", type=Path, default=Path(".venv-peers/bin/python"))
    parser.add_argument("--jax-peers-python", type=Path, default=Path(".venv-jaxpeers/bin/python"))
    given = parser.parse_args()
    # So that a contestant does not outlive us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    settings = Settings(given.full, given.seconds, given.repeats)
    pythons = interpreters(given.peers_python, given.jax_peers_python)
    everything, left_out = harness.present(cases(settings), pythons)
    selected = chosen(everything, given.only)
    machine = describe()
    if given.fresh:
        given.json.unlink(missing_ok=True)
    record = harness.read(given.json, settings, machine)
    record["left_out"] = left_out

    def save() -> None:
        harness.write(given.json, record)

    run = harness.runner(pythons)
    say("\n".join(f"{name}: {value}" for name, value in machine.items()))
    if any(harness.steps(selected, record)):
        record["ceilings"] = harness.ceilings(run, record["ceilings"])
        harness.measure(selected, record, run, save, say)
        record["ceilings"] = harness.ceilings(run, record["ceilings"])
    else:
        say(f"everything is in {given.json} already; --fresh measures it again")
    found = {name: case["results"] for name, case in record["cases"].items()}
    for case in selected:
        known = summary.digest(case, found[case.name], record["ceilings"])
        record["cases"][case.name]["summary"] = known
    save()
    say("\n".join(table.whole(selected, found, record["ceilings"])))
    troubles = [text for case in selected for text in summary.troubles(case, found[case.name])]
    for text in (*(f"left out: {one}" for one in left_out), *troubles):
        say(text)
    say(f"\n{given.json}")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
