"""Trace files of any torch, and what is written into our own: ``reader`` turns a file into a Trace."""
