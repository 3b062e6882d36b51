"""Suites that others wrote, on our stores: `make suites` downloads and runs them; a short form is part of `make test`."""
