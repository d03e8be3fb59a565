"""The proxy before the SuperLink: it lets the agents' path through, and no more than they need."""

import shutil
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

import jax

from fedrl.errors import FedrlError
from fedrl.network.certificates import header_of
from fedrl.network.deployment import LOOPBACK, Deployment
from fedrl.network.experiments import AnyExperiment
from fedrl.network.kinds import server_of
from fedrl.network.templates import filled

# Requests that an agent has under way at a time: its SuperNode sends or fetches two parts of a
# message at once, and says in between that it is there.
AT_ONCE = 8
# Seconds that a round takes at least: a SuperNode looks for messages every so many.
ROUND = 3
# Flower sends longer arrays in parts of so many bytes.
PART = 5 * 2**20


class ModelSize(NamedTuple):
    """What a message with a model has in it, with what a correction adds."""

    leaves: int
    bytes: int
    longest: int
    """Bytes of the largest leaf."""

    @property
    def requests(self) -> int:
        """More than it takes to send or fetch the model: two a leaf, one a part, and a few."""
        return 100 + 4 * (self.leaves + self.bytes // PART)

    @property
    def rate(self) -> int:
        """The same in a second."""
        return self.requests // ROUND

    @property
    def longest_request(self) -> int:
        """Bytes of the longest one: a part of a leaf, or the list of all parts."""
        return 2**16 + 2**8 * self.requests + min(self.longest, PART)


def model_size(experiment: AnyExperiment) -> ModelSize:
    """Of the larger one of what is sent and what is offered."""
    server, sizes = server_of(experiment), []
    for content in (server.sent, server.offered):
        leaves = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(content)]
        sizes.append(ModelSize(len(leaves), sum(leaves), max(leaves)))
    return max(sizes, key=attrgetter("bytes"))


def configuration(deployment: Deployment, size: ModelSize, keys: Mapping[str, bytes]) -> str:
    """nginx.conf; `keys` are the public ones of the agents.

    Paths are relative to the server's folder, which may be anywhere. Nothing is written to disk on
    the way: where root starts it, its worker may not enter that folder.
    """
    return filled(
        "nginx.conf.j2",
        deployment=deployment,
        size=size,
        keys={agent: header_of(key) for agent, key in keys.items()},
        at_once=AT_ONCE,
        superlink=f"{LOOPBACK}:{deployment.control_port}",
    )


def executable() -> str:
    """Where nginx is on this machine."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise FedrlError(
            "nginx is missing (on Debian: apt install nginx-light): it keeps everybody but agents "
            'away from the server. Where all agents run on this machine, proxy = "none" in '
            "federation.toml does without"
        )
    return found
