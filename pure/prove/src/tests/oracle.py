"""Computes with scipy what linerate computes itself. Reads data sets as JSON, writes the answers as JSON."""

import json
import sys

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

    return {"p": p(ranks_of_signs), "total_p": p(np.mean)}


def two(case):
    a, b = np.array(case["a"]), np.array(case["b"])
    differences = np.subtract.outer(b, a).ravel()
    p_at = lambda shift: stats.mannwhitneyu(a, b - shift, method="exact").pvalue
    return {"shift": np.median(differences), "interval": accepted(differences, p_at)}


def many(case):
    """By its definition: scipy has none."""
    p = np.array(case["p"])
    holm = [max(min(1.0, q * np.sum(p >= q)) for q in p[p <= x]) for x in p]
    return {"holm": holm}


def quantile(case):
    p, df = case["p"], case["df"]
    # Some versions of scipy miss the quantile by 4e-9; one Newton step corrects that.
    t = stats.t.ppf(p, df)
    t -= (stats.t.cdf(t, df) - p) / stats.t.pdf(t, df)
    return {
        "normal": stats.norm.ppf(p),
        "t": t,
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
