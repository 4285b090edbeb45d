"""Cases of a session on a Dask cluster: the session's side, the worker's side, and what they exchange."""
