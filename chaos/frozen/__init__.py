"""Every verb against a store that does not answer: who is hurt how, what is called, what must come of it."""
