"""What went over the wire between an application and a model's service: one module for each API."""
