# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow, whatever they hold."""
