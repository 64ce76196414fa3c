"""What runs on the machine: compiles a solution, checks it, times it, and reports in framed lines of its output.
Shipped as it is with every task: standard library only, any Python from 3.9, no import from the rest of Steno.
"""
