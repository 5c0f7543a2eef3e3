"""`python -m tandem` is the command `tandem`."""

import os
import sys

from ._program import program

os.execv(program(), ["tandem", *sys.argv[1:]])
