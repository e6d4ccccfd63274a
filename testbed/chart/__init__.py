"""The chart `charts/fairlead`: its templates are made of the objects of `fairlead.install` (docs/design/chart.md)."""
