"""`python -m regroup COMMAND ...` becomes the program."""

import os
import sys

from regroup import program

os.execv(program(), [program(), *sys.argv[1:]])
