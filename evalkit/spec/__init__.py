"""From a file to a Case: the on-disk format, suites, and every problem of a file in one go.

`load_case` reads a file with the suites around it, `case_from_dict` takes parsed data under the same rules,
`find_cases` says which files below some folders are cases, and `case_schema` describes the format for editors.
Each name is imported when first used.
"""
