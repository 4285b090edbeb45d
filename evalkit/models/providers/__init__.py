"""Where model turns come from: services, cassettes, scripts; and how calls are read from text and streams.

Every source is a `Provider`, so that the function-calling loop can't tell a recording from the real thing.
Each name is imported when first used, so that a provider nobody opens costs nothing.
"""
