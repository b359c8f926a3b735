"""Words, numbers and tables as people read them."""
