"""The suite's teeth: broken backends that it has to reject, correct ones that it has to accept.

`python -m tests.teeth` judges all broken backends with five seeds each and says how long it took;
`--write` writes docs/teeth.md, the table of what rejects what.
"""
