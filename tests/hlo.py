"""Reading compiled programs: which computation does what, and what it calls."""

import re

COLLECTIVE = re.compile(
    r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(-start)?\("
)
CALLED = re.compile(
    r"(?:body|condition|to_apply|calls|[a-z]+_computations?)=\{?(%[\w.\-]+(?:, *%[\w.\-]+)*)"
)
BODY = re.compile(r"body=(%[\w.\-]+)")


def computations(text):
    """The lines of every computation of a program, by its name."""
    found, name = {}, None
    for line in text.splitlines():
        begins = re.match(r"(?:ENTRY )?(%[\w.\-]+) .*\{$", line)
        if begins:
            name = begins[1]
            found[name] = []
        elif line.startswith("}"):
            name = None
        elif name:
            found[name].append(line)
    return found


def collectives(lines):
    """The lines that are communication between devices."""
    return [line for line in lines if COLLECTIVE.search(line)]


def loops(lines):
    """The bodies of the loops among these lines."""
    return [body for line in lines for body in BODY.findall(line)]


def reachable(program, names):
    """These computations and all that they call, however indirectly."""
    found, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for line in program[name]:
            for group in CALLED.findall(line):
                waiting += re.findall(r"%[\w.\-]+", group)
    return found
