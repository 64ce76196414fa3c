"""The judge's program on the machine: compiles a solution, checks it, times it, and reports in framed lines of its
output. It is sent there: numpy and any Python from 3.9 are enough, no import from the rest of Steno.
"""
