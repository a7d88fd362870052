"""Entry point of ``python -m mu2mpi``, equivalent to the command ``mu2mpi``."""

import sys

from mu2mpi.cli import main

sys.exit(main())
