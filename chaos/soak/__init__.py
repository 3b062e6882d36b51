"""Half an hour at half of the possible rate: what grows, and what gets slower."""
