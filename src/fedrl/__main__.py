"""`python -m fedrl` is the same as the `fedrl` command."""

from fedrl.cli.main import main

raise SystemExit(main())
