"""Logistic regression on random examples, with its optimum by Newton's method."""

import numpy as np


class Problem:
    """Examples `x [N, D]`, `y [N]`; their `optimum [D]` with the `lowest_loss`, and the largest `curvature` L."""

    def __init__(self, num_examples: int, num_features: int, seed: int):
        random = np.random.default_rng(seed)
        scales = np.geomspace(1.0, 0.4, num_features)
        self.x = (random.normal(size=(num_examples, num_features)) * scales).astype("float32").astype("float64")
        true_weights = 0.3 * random.normal(size=num_features) / scales
        self.y = (random.random(num_examples) < self.probabilities(true_weights)).astype("float64")
        self.curvature = float(np.linalg.eigvalsh(self.x.T @ self.x)[-1] / (4 * num_examples))
        self.optimum = self._newton(np.zeros(num_features))
        self.lowest_loss = self.loss(self.optimum)

    def probabilities(self, w: np.ndarray) -> np.ndarray:
        """Return the probability of a 1 for each example, `[N]`, for `w [D]`."""
        return 1 / (1 + np.exp(-self.x @ w))

    def loss(self, w: np.ndarray) -> float:
        """Return f(w) in nats, for `w [D]`."""
        z = self.x @ w
        return float(np.mean(np.logaddexp(0, z) - self.y * z))

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Return the gradient of f at `w [D]`, `[D]`."""
        return self.x.T @ (self.probabilities(w) - self.y) / len(self.y)

    def _newton(self, w):
        for _ in range(50):
            p = self.probabilities(w)
            hessian = (self.x.T * (p * (1 - p))) @ self.x / len(self.y)
            w = w - np.linalg.solve(hessian, self.gradient(w))
            if np.linalg.norm(self.gradient(w)) < 1e-12:
                return w
        raise ValueError("No optimum after 50 steps of Newton's method: give more --num-examples or another --seed.")
