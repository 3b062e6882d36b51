"""One object of a closed store is spoiled; then everything is worked off, and nothing of it may go wrong in silence."""
