# SPDX-License-Identifier: Apache-2.0
"""Other ways to read Pulsar or Kafka, measured beside ours."""
