"""What is asked of the operating system: files that appear whole, processes that end."""
