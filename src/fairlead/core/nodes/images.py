"""Images: which rows have which container images."""

from __future__ import annotations

from fairlead.core.model.nodes import Node


class Images:
    """rows: image name -> row -> bytes. version: raised when a node lists others."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, int]] = {}
        self.version = 0

    def change(self, row: int, old: Node | None, node: Node | None) -> None:
        """A row's node lists other images. None: there is none."""
        self.version += 1
        for name, _ in old.images if old is not None else ():
            holders = self.rows.get(name, {})
            holders.pop(row, None)
            if not holders:
                self.rows.pop(name, None)
        for name, size in node.images if node is not None else ():
            self.rows.setdefault(name, {})[row] = size
