"""The state that follows from a record: the world of a record, its runs, machines and sources, and the facts behind
them.
"""
