"""Numbers that stand for a long vector in the goldens."""

import numpy as np


def mix(z):
    """SplitMix64's output function on an array of u64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def projections(values):
    """Sixteen numbers that stand for a long vector: its products with vectors of signs, sign k of element i being + where bit k of
    mix((i + 1) · 0x9E3779B97F4A7C15) is set. The root mean square of the differences of two vectors' projections estimates the
    norm of their difference (Johnson and Lindenstrauss 1984), so a whole gradient is checked without being kept."""
    hashes = mix(np.arange(1, values.numel() + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    vector = values.double().numpy()
    return [float(np.where((hashes >> np.uint64(k)) & np.uint64(1), vector, -vector).sum()) for k in range(16)]
