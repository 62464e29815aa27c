# SPDX-License-Identifier: Apache-2.0
"""Frames as a client and a real master and broker have exchanged them.

Captured from tubemq-server 2.4.0: a producer p1 and a consumer c1 of the group g1,
topic "filt", value "hi".
"""

from __future__ import annotations

PRODUCER_REGISTER = bytes.fromhex(
    "ff7ff4fe00000001000000010000003d"
    "020800" "0408011003" "34080110904e1a2d"
    "0a027031" "120466696c74" "18ffffffffffffffffff01" "22093132372e302e302e31"
    "3a0b08feffffffffffffffff01"
)  # fmt: skip
PRODUCER_REGISTERED = bytes.fromhex(
    "ff7ff4fe000000010000000100000047"
    "020801" "0408001803" "3e0801123a"
    "0801" "10c801" "1a034f4b21" "2093a9c888a034"
    "2a11313a3132372e302e302e313a3138313233" "32070899e2f388a034"
    "3a0b08feffffffffffffffff01"
)  # fmt: skip
SEND = bytes.fromhex(
    "ff7ff4fe000000010000000100000037"
    "020800" "0408031003" "2e080d10904e1a27"
    "0a027031" "120466696c74" "1800" "22026869" "2800" "30acd5ccc405" "38818080f807"
    "52070899e2f388a034"
)  # fmt: skip
SENT = bytes.fromhex(
    "ff7ff4fe00000001000000010000003d"
    "020801" "0408001803" "34080d1230"
    "0801" "10c801" "1a1335383633383635393838333233323133333132" "2000"
    "28808080e4c5e1a8b051" "30e59d8089a034" "388405"
)  # fmt: skip
REGISTER = bytes.fromhex(
    "ff7ff4fe000000020000000100000030"
    "020800" "0408021003" "27080f10904e1a20"
    "081f" "12026331" "1a026731" "220466696c74" "2800" "3000" "408405"
    "6a070899e2f388a034"
)  # fmt: skip
GET = bytes.fromhex(
    "ff7ff4fe000000040000000100000024"
    "020800" "0408021003" "1b081110904e1a14"
    "0a026331" "1000" "1a026731" "220466696c74" "2800" "3001"
)  # fmt: skip
NOTHING_TO_GET = bytes.fromhex(
    "ff7ff4fe00000005000000010000005c"
    "020801" "0408001803" "530811124f"
    "0800" "109403"
    "1a255468652072657175657374206f66667365742072656163686564206d61784f666673657421"
    "28ffffffffffffffffff01" "30ffffffffffffffffff01" "3800"
    "40ffffffffffffffffff01"
)  # fmt: skip
COMMIT = bytes.fromhex(
    "ff7ff4fe000000060000000100000022"
    "020800" "0408021003" "19081210904e1a12"
    "0a026331" "120466696c74" "1800" "22026731" "2801"
)  # fmt: skip
#: The data of its answer, without envelope.
COMMITTED_DATA = bytes.fromhex("080110c8011a034f4b2120a00528a005")

VISIT_TOKEN = 1795315003673
REPLIES = (PRODUCER_REGISTERED, SENT, NOTHING_TO_GET)
