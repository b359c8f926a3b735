"""Any number of recordings, judged with the limits of tests; how they are judged changes nothing of what comes out."""
