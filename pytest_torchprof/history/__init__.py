"""The history of a project's runs: a record of each, stores of records, and the commits that changed what tests launch.

``record`` is the form, ``run_record`` makes it from a run. ``store`` says what every store can do, ``where`` which
store is meant, and ``folder``, ``objects`` and ``sql`` keep the records. ``runs`` chooses the runs of a branch and
puts their commits in order, ``series`` groups measurements by test, and ``changes`` finds where they changed.
"""
