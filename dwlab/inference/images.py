"""A network's inputs: random images."""

from __future__ import annotations

import numpy as np

from dwlab.problems.networks import Network


def random_image(network: Network, seed: int = 0) -> np.ndarray:
    """(N, C, H, W) float32 of about the size that normalised images have."""
    problem = network.layers[0].problem
    return np.random.default_rng(seed).standard_normal((problem.N, problem.C, problem.H, problem.W)).astype(np.float32)
