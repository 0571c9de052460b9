"""`python -m xnagent`: the same as the console script."""

import sys

if __name__ == "__main__":
    from xnagent.cli.main import main

    sys.exit(main())
