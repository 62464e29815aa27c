"""Messages <-> Arrow columns: no socket, no Spark."""
