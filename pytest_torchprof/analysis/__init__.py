"""Everything that follows from one recording, before anything is judged."""
