"""A pipeline on Spark as a program of its own, and the ways to kill it."""
