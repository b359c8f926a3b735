"""A history in SQLite or PostgreSQL, by SQLAlchemy: imported only for these."""
