"""The screens in README.md are what the commands print: they are made again and compared, numbers apart.

On the same cluster the commands of pages that only show something are run as they are there.
"""

import re

from testbed import screens
from tests import pages

SHOW = ("queue", "explain", "nodes", "share", "quota", "top")


def commands_of_pages():
    for page in ("use/waiting.md", "administration/queues.md", "administration/pools.md"):
        for block in pages.blocks(pages.ROOT / "docs" / page):
            for line in block.text.split("\n"):
                for _, words in pages.commands(line):
                    if words[0] in SHOW:
                        yield " ".join(words)


def shape(screen):
    """Words and columns; each number is one digit, with the spaces around it."""
    return [re.sub(r"[\d.,:]*\d[\d:]*", "0", re.sub(r" {2,}", "  ", line)) for line in screen.splitlines()]


def test_the_screens_of_the_readme_are_what_the_commands_print():
    shown, others = screens.shown(), list(commands_of_pages())
    made = screens.screens([*screens.SCREENS, *others])
    assert list(shown) == list(screens.SCREENS)
    assert len(others) >= 7
    assert all(made[command] for command in others)
    for command in screens.SCREENS:
        screen = made[command]
        assert shape(shown[command]) == shape(screen), f"fairlead {command}: run `python -m testbed.screens`"
