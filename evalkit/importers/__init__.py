"""Logged conversations as cases: messages, calls and answers become input, expectations, mocks and a cassette."""
