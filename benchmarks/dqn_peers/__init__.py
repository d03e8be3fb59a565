"""How DQN with parameter averaging is trained today with PyTorch: what we are measured against.

    python -m benchmarks.dqn_peers PEER --hidden 64,64 --batch 64 --agents 5 --E 100 --steps 3000

PEER is `sb3` (Stable-Baselines3), `loop` (a plain PyTorch loop) or `stacked` (all agents in one
batched network). All of them do the work described in `common`. One JSON line is printed. Needs
`pip install torch==2.13.0 stable-baselines3`, in an environment of its own if need be.
"""
