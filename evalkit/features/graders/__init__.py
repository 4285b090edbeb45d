"""Graders: models that say whether criteria in words are met, and how far they agree with people."""
