"""What Spark sees: the sink, the source, and how rows get from Arrow to records."""
