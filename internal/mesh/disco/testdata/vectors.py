#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes vectors.json from docs/reference/mesh-wire.md section 3 alone, with nothing
of the program: HKDF and HChaCha20 by hand, X25519 and ChaCha20-Poly1305 of the
Python package "cryptography".

    python3 vectors.py > vectors.json
"""
import hashlib, hmac, ipaddress, json, struct
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

seq = lambda first, n=32: bytes((first + i) % 256 for i in range(n))
raw = lambda k: k.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def hkdf(secret, salt, info):  # RFC 5869, one block
    prk = hmac.new(salt, secret, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()


def hchacha20(key, nonce16):  # draft-irtf-cfrg-xchacha-03 section 2.2
    s = list(struct.unpack("<4I", b"expand 32-byte k")) + list(struct.unpack("<8I", key)) + list(struct.unpack("<4I", nonce16))
    rot = lambda x, n: ((x << n) | (x >> (32 - n))) & 0xFFFFFFFF

    def quarter(a, b, c, d):
        for p, q, r, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[p] = (s[p] + s[q]) & 0xFFFFFFFF
            s[r] = rot(s[r] ^ s[p], n)

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<8I", *(s[:4] + s[12:]))


def xchacha(key, nonce, text, aad):
    return ChaCha20Poly1305(hchacha20(key, nonce[:16])).encrypt(bytes(4) + nonce[16:], text, aad)


def address(ip, port):
    a = ipaddress.ip_address(ip)
    b = a.packed if a.version == 6 else bytes(10) + b"\xff\xff" + a.packed
    return b + struct.pack(">H", port)


sender, receiver = (X25519PrivateKey.from_private_bytes(seq(n)) for n in (1, 101))
psk, nonce = seq(201), seq(50, 24)
shared = sender.exchange(receiver.public_key())
key = hkdf(shared + psk, b"tombolo mesh probe 1", raw(sender) + raw(receiver))
hint = hashlib.sha256(b"tombolo mesh hint 1\0" + raw(receiver) + raw(sender)).digest()[:8]
head = bytes.fromhex("f5544201") + hint

probes = []
for what, payload in (
    ("ping", b"\x01" + struct.pack(">QB", 1 << 63, 1) + bytes(30)),
    ("pong", b"\x02" + struct.pack(">Q", 7) + address("198.51.100.7", 51820) + struct.pack(">H", 1452) + b"\x00"),
    ("wanted", b"\x02" + struct.pack(">Q", 7) + address("198.51.100.7", 51820) + struct.pack(">H", 1452) + b"\x01"),
    ("call", b"\x03\x02" + address("10.0.0.1", 51820) + address("2001:db8::1", 65535)),
    ("unknown", b"\x63 what a later version says"),
):
    probes.append({"what": what, "payload": payload.hex(), "packet": (head + nonce + xchacha(key, nonce, payload, head)).hex()})

print(json.dumps({
    "sender": seq(1).hex(), "receiver": seq(101).hex(), "psk": psk.hex(), "hint": hint.hex(), "nonce": nonce.hex(), "probes": probes,
}, indent=2))
