"""Facts of a project that the rules of lint compare, read from its files without running them."""
