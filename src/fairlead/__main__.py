"""`python -m fairlead`."""

from fairlead.cli.main import run

run()
