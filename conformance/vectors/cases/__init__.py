"""The golden cases, by subject. Each module's `cases()` yields its cases, always the same."""
