"""Trace files of any torch, and what is written into our own: ``reader`` makes a Trace of one."""
