"""What features ask: rules of lint, tests of cases, reports. A feature knows of each what its `api.py` lists."""
