"""Numbers of things in words."""


def count(number: int, things: str) -> str:
    """`1 agent`, `2,000 agents`: the plural in `things` loses its s where there is one."""
    return f"{number:,} {things if number != 1 else things.removesuffix('s')}"


def round_name(number: int, rounds: int) -> str:
    """`round 3`; a message after the last round only asks for an evaluation."""
    return f"round {number}" if number <= rounds else "the last evaluation"
