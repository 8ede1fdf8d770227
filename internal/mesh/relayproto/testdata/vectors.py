#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes vectors.json from docs/reference/mesh-wire.md section 4 alone, with nothing
of the program.

    python3 vectors.py > vectors.json
"""
import ipaddress, json, struct


def frame(kind, body):
    return (bytes([kind]) + struct.pack(">I", len(body))[1:] + body).hex()


def addr(text):
    a = ipaddress.ip_address(text)
    return b"\0" * 10 + b"\xff\xff" + a.packed if a.version == 4 else a.packed


def named(name, more=b""):
    return bytes([len(name)]) + name.encode() + more


def welcome(at, port, largest, rate):
    return addr(at) + struct.pack(">HHQ", port, largest, rate)


def text(s):
    return struct.pack(">H", len(s.encode())) + s.encode()


out = {
    "welcome": [
        {"observed": "192.0.2.7", "port": 40000, "largest": 9000, "rate": 33554432, "frame": frame(1, welcome("192.0.2.7", 40000, 9000, 33554432))},
        {"observed": "2001:db8::7", "port": 1, "largest": 1, "rate": 0, "frame": frame(1, welcome("2001:db8::7", 1, 1, 0))},
    ],
    "packet": [
        {"name": n, "datagram": d.hex(), "frame": frame(2, named(n, d))}
        for n, d in [("n", b""), ("worker-1.example.org", b"\x04\0\0\0" + bytes(range(60))), ("a" * 253, b"\xf5TB\x01" + b"\x55" * 8996)]
    ],
    "absent": [{"name": "worker-2", "frame": frame(3, named("worker-2"))}],
    "ping": [{"id": "0102030405060708", "ping": frame(4, bytes(range(1, 9))), "pong": frame(5, bytes(range(1, 9)))}],
    "drain": frame(6, b""),
    "end": [{"code": "draining", "what": "the hub stops", "why": "", "next": "é", "frame": frame(7, text("draining") + text("the hub stops") + text("") + text("é"))}],
}
print(json.dumps(out, indent=1, ensure_ascii=False))
