"""The reasons why something failed or is not measured: each with its code, and the error that carries it.

A reason is made where the fact is known, and put into words where somebody reads it.
"""
