"""An episode as a GIF."""

import io
from pathlib import Path
from typing import Any

from fedrl.envs import FamilyEnv
from fedrl.families import GymnasiumFamily
from fedrl.files import write_atomically
from fedrl.runs.run import Run

FRAME_MILLISECONDS = 40
# Of a longer episode only every second, third, ... step is drawn.
MOST_FRAMES = 300


def render_episode(
    run: Run, theta: tuple[float, ...], agent: int | None, seed: int, out: Path | None
) -> tuple[Path, int, float]:
    """Play one greedy episode and write it down; (file, steps, return)."""
    from PIL import Image

    family = run.experiment.family
    policy = run.policy(agent, seed)
    env: Any = (
        family.rendered(theta)
        if isinstance(family, GymnasiumFamily)
        else FamilyEnv(family, theta, render_mode="rgb_array")
    )
    observation, _ = env.reset(seed=seed)
    every = -(-family.time_limit // MOST_FRAMES)
    frames, steps, total, over = [env.render()], 0, 0.0, False
    while not over and steps < family.time_limit:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        over = terminated or truncated
        steps += 1
        total += float(reward)
        if over or steps % every == 0:
            frames.append(env.render())
    pictures = [
        Image.fromarray(frame).reduce(2).quantize(64) for frame in frames if frame is not None
    ]
    buffer = io.BytesIO()
    pictures[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=FRAME_MILLISECONDS,
        loop=0,
    )
    whose = "" if agent is None else f"-agent{agent}"
    name = "-".join(f"{x:g}" for x in theta) + f"-seed{seed}{whose}"
    path = out or run.path / "figures" / f"episode-{name}.gif"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    return path, steps, total
