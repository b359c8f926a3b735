"""What runs leave for later: a record of each, a store of them, and which commit changed what a test launches.

``record`` is the form, ``run_record`` makes it of a run. ``store`` says what every store can do, ``where`` which one is
meant, and ``folder``, ``objects`` and ``sql`` keep the records. ``runs`` chooses those of a branch and puts their
commits in order, ``series`` sorts what was measured by test, and ``changes`` says where it changed.
"""
