"""Arrays: what they hold, by name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
"""Whether, of each row."""

Domains = npt.NDArray[np.int32]
"""The domain of each row, 0: none."""

RowNumbers = npt.NDArray[np.int32]
Rows = slice | RowNumbers
"""The rows that an operation reads."""
