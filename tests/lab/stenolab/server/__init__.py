"""A genuine dstack server that believes it talks to a cloud. Runs with the Python of the server's own environment.

What is replaced, and nothing else: the cloud's API address and the SSH tunnel (`tunnel`), the look-up of images in a
registry and the offers of spot machines, which DigitalOcean has not (`offline`), and how patient it is (`pace`).
"""

from __future__ import annotations

import importlib
import importlib.util

if importlib.util.find_spec("dstack._internal.server.bootstrap"):
    # 0.20 and later want their process set up before anything else of dstack is imported.
    importlib.import_module("dstack._internal.server.bootstrap").set_up_process()
