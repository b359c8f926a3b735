"""What differs between kinds of devices."""
