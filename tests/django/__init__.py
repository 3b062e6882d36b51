"""Tasks of Django on stores of Holdfast."""
