"""The screens in README.md are what the commands print: they are made again and compared, numbers apart."""

import re

from testbed import screens


def shape(screen):
    """Words and columns; each number is one digit, with the spaces around it."""
    return [re.sub(r"[\d.,:]*\d[\d:]*", "0", re.sub(r" {2,}", "  ", line)) for line in screen.splitlines()]


def test_the_screens_of_the_readme_are_what_the_commands_print():
    shown, made = screens.shown(), screens.screens()
    assert list(shown) == list(screens.SCREENS)
    for command, screen in made.items():
        assert shape(shown[command]) == shape(screen), f"fairlead {command}: run `python -m testbed.screens`"
