"""The allowed errors, by the dtype of the inputs: the gates of docs/accuracy.md."""

import numpy as np

# Largest scaled error |o - r| / max(1, |r|), relative error, largest error of LSE.
GATES = {
    "float32": (2e-5, 2e-6, 1e-4),
    "float16": (1e-3, 1e-3, 1e-3),
    "bfloat16": (8e-3, 6e-3, 1e-3),
}


def check(actual, expected, dtype):
    """Asserts that O passes the gate of its inputs' dtype."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    largest, relative, _ = GATES[dtype]
    error = np.abs(actual - expected)
    assert (error / np.maximum(1, np.abs(expected))).max(initial=0) <= largest
    assert np.linalg.norm(error) <= relative * np.linalg.norm(expected) + 1e-30


def check_lse(actual, expected, dtype):
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert np.array_equal(np.isneginf(actual), np.isneginf(expected))
    finite = np.isfinite(expected)
    assert np.abs(actual[finite] - expected[finite]).max(initial=0) <= GATES[dtype][2]


# Relative error of a gradient; `flashcore verify` checks its largest error.
GRADIENT_GATES = {"float32": 5e-6, "float16": 3e-3, "bfloat16": 1.2e-2}


def check_gradient(actual, expected, dtype):
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    limit = GRADIENT_GATES[dtype] * np.linalg.norm(expected)
    assert np.linalg.norm(actual - expected) <= limit + 1e-30
