"""What runs on the machine: compiles a solution, checks it, times it, and says so in framed lines of its output.

Shipped as it stands with every task, so: standard library only, any Python from 3.9, no import from the rest of Steno.
"""
