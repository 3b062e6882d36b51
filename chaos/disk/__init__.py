"""A disk that gets full and is freed again."""
