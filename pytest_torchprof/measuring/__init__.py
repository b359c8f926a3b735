"""The parts that a measurement needs in a test and in a script: how it runs, and how it is explained."""
