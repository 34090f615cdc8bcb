"""Balance Gymnasium's CartPole-v1 with a linear policy: push right where weights . observation > 0."""

from __future__ import annotations

from functools import cache
from typing import Any

import gymnasium
import numpy as np

N_STEPS = 500  # CartPole-v1 ends an episode after as many steps, each with the reward 1


@cache
def environment() -> Any:
    """Make the environment once per process."""
    return gymnasium.make("CartPole-v1")


def shortfall(parameters: dict[str, Any], context: Any, n_episodes: int) -> float:
    """Give how far the mean return of n_episodes stays below the best possible one."""
    weights = parameters["weights"]
    starts = np.random.default_rng(context.seed).integers(0, 2**31, n_episodes)
    return N_STEPS - float(np.mean([episode_return(weights, int(seed)) for seed in starts]))


def episode_return(weights: np.ndarray, seed: int) -> float:
    """Play one episode from the start that the seed draws and sum its rewards."""
    env = environment()
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, fell, timed_out, _ = env.step(int(weights @ observation > 0))
        total += float(reward)
        over = fell or timed_out
    return total
