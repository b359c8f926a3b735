"""What runs leave for later: a record of each, a folder of them, and which commit changed what a test launches.

``record`` is the form, ``run_record`` makes it of a run, ``folder`` keeps it; ``runs`` chooses those of a branch and
puts their commits in order, ``series`` sorts what was measured by test, and ``changes`` says where it changed.
"""
