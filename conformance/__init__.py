"""Is it right? Artifacts (files someone produced) and backends (code someone wrote)."""
