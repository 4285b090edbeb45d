"""One case file, many cases: rows give the values of ``{{ row.x }}``. docs/rows.md."""
