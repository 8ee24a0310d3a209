"""Small checkpoints of both formats, valid or with one fault: for tests, and to try tools on."""
