"""What no test depends on: how wide the terminal is from which the tests are started."""

import os

os.environ.pop("COLUMNS", None)
