"""Suites that others wrote, on our stores: `make suites` downloads and runs them, `make test` some of them."""
