"""Where and how a round is carried out: agents, rounds, executors."""
