# SPDX-License-Identifier: Apache-2.0
"""The service over gRPC, by the SDK's driver."""
