"""`python -m tests.fuzz`."""

import sys

from tests.fuzz.runner import main

sys.exit(main())
