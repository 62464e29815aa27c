# SPDX-License-Identifier: Apache-2.0
"""The inner loops over bytes, compiled where a C compiler is available."""
