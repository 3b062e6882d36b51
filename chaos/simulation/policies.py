"""The policies of the log engine that are simulated."""

POLICIES = ("bucket", "folder", "slatedb")
