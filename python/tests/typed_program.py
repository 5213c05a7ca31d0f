"""What a program outside of the package may write: mypy checks it against the installed wheel."""

import numpy as np
from numpy.typing import NDArray

import flashcore
from flashcore.serving import Batch, pages


def attend(q: NDArray[np.float32]) -> NDArray[np.float32]:
    o, lse = flashcore.attention(q, q, q, causal=True, return_lse=True)
    merged, _ = flashcore.merge(o, lse, o, lse)
    return np.asarray(merged)


def step(batch: Batch, q: NDArray[np.float32], cache: NDArray[np.float32]) -> NDArray[np.float32]:
    in_pages = pages(cache, 16)
    return np.asarray(batch.attend(q, in_pages, in_pages))


version: str = flashcore.__version__
