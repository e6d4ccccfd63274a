"""What users write: the typed objects of group `fairlead.dev`, quantities, names and reasons."""
