"""The conformance suite on every store of this repository."""
