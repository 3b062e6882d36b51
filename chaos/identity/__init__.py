"""Folders that are moved, removed, recreated, swapped and restored while they are open."""
