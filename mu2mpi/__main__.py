"""``python -m mu2mpi``: the same as the command ``mu2mpi``."""

import sys

from mu2mpi.cli import main

sys.exit(main())
