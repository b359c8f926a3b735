"""The world outside of Python: files that appear whole, processes that end, files behind addresses."""
