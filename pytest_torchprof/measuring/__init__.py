"""The parts of a measurement that tests and scripts share: how it runs, and how it is explained."""
