"""`python -m jaxsoa.cli`, where the script is not on the path."""

import sys

from jaxsoa.cli import main

if __name__ == "__main__":
    sys.exit(main())
