# SPDX-License-Identifier: Apache-2.0
import os
import sys

# Packages are compiled once where they are installed, so processes of a cold job must
# not compile ours each time, whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
