# SPDX-License-Identifier: Apache-2.0
"""What makes a write safe."""
