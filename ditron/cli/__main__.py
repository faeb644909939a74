"""``python -m ditron.cli``."""

import sys

from ditron.cli import main

sys.exit(main())
