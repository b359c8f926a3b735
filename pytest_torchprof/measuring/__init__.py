"""What a measurement takes wherever it is made, in a test or in a script: how it runs, and what explains it."""
