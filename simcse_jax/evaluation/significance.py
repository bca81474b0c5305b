"""Whether two systems differ by more than chance, given their scores on the same queries or seeds."""

from collections.abc import Sequence

import numpy as np

FLAT = 1e-9  # differences that vary by less, relative to their size, do not vary


def paired_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The p-value of a paired two-sided t-test: could the two have the same mean?

    On the queries of retrieval it agrees with randomization tests (Smucker, Allan & Carterette 2007).

    None where the test is undefined: below two pairs, or when all differences are the same.
    """
    import scipy.stats  # takes most of a second, for which a run's first step need not wait

    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    if len(differences) < 2 or np.ptp(differences) <= FLAT * max(1.0, np.abs(differences).max()):
        return None
    return float(scipy.stats.ttest_rel(first, second).pvalue)
