"""How DDPG with parameter averaging is trained today with PyTorch: what we are measured against.

    python -m benchmarks.ddpg_peers PEER --robot HalfCheetah-v5 --hidden 400,300 --batch 64

PEER is `sb3` (Stable-Baselines3), `loop` (a plain PyTorch loop) or `bare` (only the updates of
`loop`: no environment, no replay, no averages). All of them do the work described in `common`, in
two processes with one thread each. One JSON line is printed. Needs, in an environment of its own if
need be, `pip install torch==2.13.0 stable-baselines3 'mujoco==3.17.*' imageio packaging`.
`products` is not a peer but a bound, and needs JAX.
"""
