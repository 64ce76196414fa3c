"""The record: event types, codec, store, hash chain, vault and traces.

Knows nothing of what an event means; that is `engine/`.
"""
