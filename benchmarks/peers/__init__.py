"""How agents that average their parameters are trained today: what we are measured against.

    python -m benchmarks.peers dqn sb3 --hidden 64,64 --batch 64
    python -m benchmarks.peers ddpg stacked --hidden 400,300 --batch 64

`sb3` is Stable-Baselines3, `loop` a training loop in one file as in CleanRL, `stacked` all agents
in one batched PyTorch network, `bare` the updates of `loop` alone. `purejax` and `rejax` are single
agents in JAX, many at once and without averages. The work is described in `dqn.common` and
`ddpg.common`. One JSON line is printed.

They live apart from us: `make .venv-peers/ready`, and for rejax `make .venv-jaxpeers/ready`.
"""
