"""`python -m dgsf.cli`: the command line, also where the `dgsf` script is not on the path."""

from dgsf.cli import main

main()
