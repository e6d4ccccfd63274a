"""Dynamic Resource Allocation: claims for devices, and which devices satisfy them."""
