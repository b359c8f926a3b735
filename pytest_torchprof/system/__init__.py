"""The operating system's part: files that appear whole, processes that end."""
