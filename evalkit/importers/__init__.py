"""Conversations that were logged elsewhere, as cases: what was said, asked for and answered becomes input,
expectations, mocks and a cassette.

`reading` opens files and tells the formats apart, one module each reads OpenAI's, Gemini's and Anthropic's messages and
OpenTelemetry spans, `casefile` makes the files.
"""
