"""The schemas of a database, each as the change from the one before; alembic reads them."""
