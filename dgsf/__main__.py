"""`python -m dgsf`: the command line, for where the `dgsf` script is not on the path."""

from dgsf.cli import main

main()
