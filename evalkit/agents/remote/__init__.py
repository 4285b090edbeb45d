"""Remote."""
