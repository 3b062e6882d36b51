"""Random histories of every verb, judged from the contract alone: nothing here knows how a store works."""
