"""A power cut: what a program asked of the disk, and what of it is there after the power has failed (R8)."""
