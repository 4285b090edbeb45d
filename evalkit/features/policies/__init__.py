"""Rules over all cases of a folder: `policies.yaml`. docs/policies.md."""
