"""``python -m supervisor.cli``, for where the console script is not on the path."""

import sys

from supervisor.cli import main

sys.exit(main())
