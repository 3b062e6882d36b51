"""The jobs of `holdfast pipeline` as functions, one file each."""
