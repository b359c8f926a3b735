"""Trace files of any torch, and the data that is written into our own: ``reader`` turns a file into a Trace."""
