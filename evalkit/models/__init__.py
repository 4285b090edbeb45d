"""Models are asked, or recorded replies are played: providers, pacing, budget, cassettes, streams."""
