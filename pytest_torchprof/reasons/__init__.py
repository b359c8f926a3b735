"""What went wrong, or why something is not measured: its code, its reason, and the error that carries the reason.

A reason is made where the fact is known, and put into words where somebody reads it.
"""
