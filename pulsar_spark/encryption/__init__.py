# SPDX-License-Identifier: Apache-2.0
"""End-to-end encryption of payloads, as in Pulsar's clients.

::

    payload --AES-GCM, data key--> payload of the entry, 16 bytes longer
    data key --public key "a"----> encryption_keys {key: "a", value: ...}
             --public key "b"----> encryption_keys {key: "b", value: ...}
    12 random bytes -------------> encryption_param

A producer makes a data key that it owns and sends it along with each entry, encrypted
once for each recipient; who has any one private key finds it. What is encrypted is the
payload of an entry as it would be stored else: a whole batch, compressed, or one chunk.
Metadata stay readable, keys and properties of single messages among them.

Source: MessageCryptoBc.java of Pulsar, MessageCrypto.cc of its C++ client.
"""
