"""Computes with scipy what linerate computes itself. Reads data sets as JSON, writes the answers as JSON."""

import json
import sys
from itertools import product

import numpy as np
from scipy import stats

ALPHA = 0.05


def accepted(candidates, p_at):
    """The ends of the region of shifts that a test does not reject, found by testing shift after shift."""
    candidates = np.unique(candidates)
    between = (candidates[1:] + candidates[:-1]) / 2
    inside = [i for i, shift in enumerate(between) if p_at(shift) > ALPHA]
    return [candidates[inside[0]], candidates[inside[-1] + 1]] if inside else None


def paired(case):
    """Values without ties and zeros: scipy's exact signed-rank test."""
    d = np.array(case["d"])
    walsh = [(a + b) / 2 for i, a in enumerate(d) for b in d[i:]]
    answer = {
        "p": stats.wilcoxon(d, mode="exact").pvalue,
        "typical": np.median(walsh),
    }
    if len(d) >= 6:
        answer["interval"] = accepted(walsh, lambda shift: stats.wilcoxon(d - shift, mode="exact").pvalue)
    return answer


def tied(case):
    """Ties and zeros, where scipy's wilcoxon has no exact p-value: its permutation test."""
    d = np.array(case["d"])
    ranks = stats.rankdata(np.abs(d))

    def ranks_of_signs(x, axis):
        return np.sum(np.sign(x) * ranks, axis=axis)

    # The statistic is symmetric, so the two-sided p-value is that of both tails.
    def p(statistic):
        test = stats.permutation_test(
            (d,), statistic, permutation_type="samples", vectorized=True, n_resamples=np.inf
        )
        return min(1.0, test.pvalue)

    masks = np.array(list(product([0, 1], repeat=len(d))))[1:]
    means = np.sort(masks @ d / masks.sum(axis=1))
    k = int(ALPHA / 2 * 2 ** len(d))
    return {
        "p": p(ranks_of_signs),
        "total_p": p(np.mean),
        "total_interval": [means[k - 1], means[-k]] if k > 0 else None,
    }


def two(case):
    a, b = np.array(case["a"]), np.array(case["b"])
    if not case["ties"]:
        exact = lambda x, y: stats.mannwhitneyu(x, y, method="exact").pvalue
        differences = np.subtract.outer(b, a).ravel()
        return {
            "p": exact(a, b),
            "shift": np.median(differences),
            "interval": accepted(differences, lambda shift: exact(a, b - shift)),
        }
    middle = len(a) * (len(a) + len(b) + 1) / 2

    def far(x, y, axis):
        ranks = stats.rankdata(np.concatenate([x, y], axis=axis), axis=axis)
        return np.abs(ranks[..., : x.shape[axis]].sum(axis=axis) - middle)

    test = stats.permutation_test(
        (a, b), far, alternative="greater", vectorized=True, n_resamples=np.inf, axis=-1
    )
    return {"p": test.pvalue}


def many(case):
    """By their definitions: scipy has one of them from 1.11 on, Debian's has none."""
    p = np.array(case["p"])
    holm = [max(min(1.0, q * np.sum(p >= q)) for q in p[p <= x]) for x in p]
    bh = [min(min(1.0, q * len(p) / np.sum(p <= q)) for q in p[p >= x]) for x in p]
    return {"holm": holm, "bh": bh}


def quantile(case):
    return {
        "normal": stats.norm.ppf(case["p"]),
        "t": stats.t.ppf(case["p"], case["df"]),
        "t_cdf": stats.t.cdf(case["x"], case["df"]),
    }


def factors(case):
    """Two levels: coefficients of -1 and 1, by numpy's least squares."""
    blocks, levels, y = (np.array(case[key]) for key in ("blocks", "levels", "y"))
    sides = 2.0 * levels - 1
    n = sides.shape[1]
    columns = [(blocks == b).astype(float) for b in np.unique(blocks)]
    first = len(columns)
    columns += [sides[:, i] for i in range(n)]
    columns += [sides[:, i] * sides[:, j] for i in range(n) for j in range(i + 1, n)]
    x = np.column_stack(columns)
    solution, squares, rank, _ = np.linalg.lstsq(x, y, rcond=None)
    df = len(y) - rank
    errors = np.sqrt(squares[0] / df * np.diag(np.linalg.inv(x.T @ x)))
    # From -1 to 1 is twice the coefficient; a difference of differences is four times it.
    scale = np.array([2.0] * n + [4.0] * (n * (n - 1) // 2))
    value, error = scale * solution[first:], scale * errors[first:]
    reach = stats.t.ppf(1 - ALPHA / 2, df) * error
    p = 2 * stats.t.sf(np.abs(value / error), df)
    return {
        "value": list(value),
        "low": list(value - reach),
        "high": list(value + reach),
        "p": many({"p": p})["holm"],
    }


KINDS = {f.__name__: f for f in (paired, tied, two, many, quantile, factors)}
json.dump([KINDS[case["kind"]](case) for case in json.load(sys.stdin)], sys.stdout)
