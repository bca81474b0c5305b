"""TensorBoard's writer, from tensorboardX, which would import PyTorch where it is installed.

That takes two seconds, in which a run's loop stands still, and serves the logs of PyTorch's tensors, of which a run has
none. Import this module where a line is written, not before: it takes a few tenths of a second.
"""

import sys

_other = sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # None: importing it fails, as if not there
try:
    from tensorboardX import SummaryWriter as SummaryWriter
finally:
    if _other is None:
        del sys.modules["torch"]
