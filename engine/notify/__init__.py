"""Notices to a webhook: what is news, how it reads, and its delivery."""
