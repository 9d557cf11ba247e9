"""Where the real dumps and logs lie that some tests read: none of them is in this repository."""

import os
from pathlib import Path

SAMPLES = Path(
    os.environ.get("ODDRANK_SAMPLES") or Path(__file__).parents[2] / "shared" / "samples"
)
