"""The suite's teeth: broken backends that it has to reject, correct ones that it has to accept.

`pytest tests/teeth` judges each with one seed. `python -m tests.teeth` judges the broken ones with
five, `python -m tests.teeth correct` the correct ones; with `--write` the first also writes
docs/teeth.md, the table of what rejects what.
"""
