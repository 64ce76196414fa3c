"""Makes `stenotest`, what tests share, importable for a benchmark: `import support` before it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
