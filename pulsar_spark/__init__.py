"""Apache Pulsar topics as Spark tables and streams, in Python."""

__version__ = "0.1.0"
