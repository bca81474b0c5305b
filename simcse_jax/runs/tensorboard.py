"""TensorBoard's writer, from tensorboardX, which would import PyTorch where it is installed.

That takes two seconds, in which a run's loop stands still, and serves the logs of PyTorch's tensors, of which a run has
none. Import this module where a line is written, not before: it takes a few tenths of a second.
"""

import sys

_absent = "torch" not in sys.modules
if _absent:
    sys.modules["torch"] = None  # type: ignore[assignment]  # importing it fails, as if it were not installed
try:
    from tensorboardX import SummaryWriter as SummaryWriter
finally:
    if _absent and sys.modules["torch"] is None:
        del sys.modules["torch"]
