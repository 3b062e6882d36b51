"""Suites that others wrote, on our stores: `make suites` downloads and runs them."""
