"""The page of `holdfast serve`: HTML that works without script, one stylesheet, one small script, all from here."""
