"""How far the answers of two systems are apart."""
import numpy as np


def difference(wanted, found):
    """Relative to the largest element; text where shapes differ."""
    worst = 0.0
    for x, y in zip(wanted, found):
        x, y = np.asarray(x), np.asarray(y)
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{y.dtype}{list(y.shape)} where {x.dtype}{list(x.shape)} is right"
        x, y = x.astype(np.float64), y.astype(np.float64)
        if (np.isnan(x) != np.isnan(y)).any():
            return "NaN in other places"
        finite = np.isfinite(x)
        if finite.any():
            with np.errstate(invalid="ignore"):
                worst = max(worst, float(np.abs(x - y)[finite].max() / max(np.abs(x[finite]).max(), 1e-2)))
    return worst
