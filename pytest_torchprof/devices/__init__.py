"""What differs between kinds of devices, as far as a recording is read; ``capture.devices`` has what is measured."""
