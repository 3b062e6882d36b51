"""`holdfast bench`: measurements as ratios of two things taken in the same run."""
