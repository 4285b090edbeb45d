"""Programs and services as agents: `agent: {command: ...}`, `agent: {url: ...}`."""
