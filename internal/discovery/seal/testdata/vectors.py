#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes vectors.json from docs/reference/discovery-wire.md alone, with nothing of
the program: HKDF, hashes, protobuf and XEdDSA by hand, Ed25519, X25519 and AES of
the Python package "cryptography".

    python3 vectors.py > vectors.json
"""
import base64, hashlib, hmac, json, struct
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

sha = lambda b: hashlib.sha256(b).digest()
seq = lambda first, n=32: bytes((first + i) % 256 for i in range(n))


def hkdf(secret, info):  # RFC 5869, one block
    prk = hmac.new(b"tombolo cluster secret 1", secret, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()


def base32hex(b):  # RFC 4648 section 7
    bits = "".join(f"{x:08b}" for x in b)
    bits += "0" * (-len(bits) % 5)
    return "".join("0123456789abcdefghijklmnopqrstuv"[int(bits[i:i + 5], 2)] for i in range(0, len(bits), 5))


def key(seed):
    k = Ed25519PrivateKey.from_private_bytes(seed)
    return k, k.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


secret = seq(0)
verifier, verifier_public = key(hkdf(secret, b"discovery verifier"))
data_key = hkdf(secret, b"discovery data")
cluster = sha(b"tombolo discovery cluster 1\0" + verifier_public)
member, member_public = key(seq(0x40))
member_id = sha(b"tombolo discovery member 1\0" + member_public)
old, old_public = key(seq(0x80))
old_id = sha(b"tombolo discovery member 1\0" + old_public)
admission = verifier.sign(b"tombolo discovery admission 1\0" + cluster + member_public)


def entry(version, ttl, sealed, removed, succession):
    msg = b"tombolo discovery entry 1\0" + cluster + member_public + struct.pack(">QIB", version, ttl, removed)
    signature = member.sign(msg + sha(sealed) + sha(succession))
    out = field(1, member_public) + field(2, version) + field(3, ttl)
    if sealed:
        out += field(4, sealed)
    out += field(5, signature) + field(6, admission)
    if succession:
        out += field(7, field(1, succession[:32]) + field(2, succession[32:]))
    if removed:
        out += field(8, 1)
    return out


version, ttl, nonce = 1772366400000000001, 1800, seq(0xA0, 12)
plain = (field(1, "machine-1") + field(2, "worker-1.example") + field(3, "worker-1") + field(4, bytes([10, 0, 0, 5]))
         + field(4, bytes.fromhex("20010db8000000000000000000000005"))
         + field(5, field(1, bytes([10, 0, 0, 5])) + field(2, 51820) + field(3, "own")) + field(6, seq(1))
         + field(7, bytes.fromhex("fd00000000000000000000000000000a"))
         + field(9, field(1, bytes([10, 244, 1, 0])) + field(2, 24)) + field(12, "worker") + field(14, "an OS") + field(15, "tombolo/1.0.0")
         + field(1000, "a field of tomorrow"))
associated = b"tombolo discovery data 1\0" + cluster + member_id + struct.pack(">Q", version)
sealed = nonce + AESGCM(data_key).encrypt(nonce, plain, associated)
succession = old_public + old.sign(b"tombolo discovery succession 1\0" + cluster + old_id + member_id)
challenge = seq(0xC0)

# What a member says for the mesh, with the words of its two WireGuard keys: XEdDSA
# (revision 1) over the curve of RFC 8032.
p, q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
d = -121665 * pow(121666, -1, p) % p
base = (15112221349535400772501151409588531511454012693041857206046113283949847762202, 4 * pow(5, -1, p) % p)


def plus(a, b):
    k = d * a[0] * b[0] * a[1] * b[1]
    return (a[0] * b[1] + b[0] * a[1]) * pow(1 + k, -1, p) % p, (a[1] * b[1] + a[0] * b[0]) * pow(1 - k, -1, p) % p


def times(n):
    out, at = (0, 1), base
    while n:
        if n & 1:
            out = plus(out, at)
        at, n = plus(at, at), n >> 1
    return out


point = lambda at: (at[1] | (at[0] & 1) << 255).to_bytes(32, "little")
scalar = lambda *parts: int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % q


def xeddsa(private, message, random):
    a = int.from_bytes(private, "little") & (1 << 254) - 8 | 1 << 254
    public = times(a)
    a = -a % q if public[0] & 1 else a % q
    named = point((0, public[1]))
    r = scalar(b"\xfe" + b"\xff" * 31, a.to_bytes(32, "little"), message, random)
    big = point(times(r))
    return big + ((r + scalar(big, named, message) * a) % q).to_bytes(32, "little")


def wireguard(private, random):
    public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return public, xeddsa(private, b"tombolo discovery wireguard 1\0" + cluster + member_id + public, random)


wg_private, proof_random = seq(0x11), seq(0x33, 64)
wg_public, wg_proof = wireguard(wg_private, proof_random)
mesh_plain = (field(1, "machine-1") + field(6, wg_public) + field(16, 1) + field(17, "c1") + field(18, "hub-1") + field(18, "hub-2")
              + field(20, wg_proof) + field(1000, "a field of tomorrow"))
mesh_sealed = nonce + AESGCM(data_key).encrypt(nonce, mesh_plain, associated)
proof_message = b"tombolo discovery proof 1\0" + challenge + cluster

affiliate = (field(1, "node-1") + field(2, bytes([10, 0, 0, 5])) + field(3, "cp-1") + field(4, "cp-1") + field(5, "controlplane")
             + field(6, "Talos (v1.14.0)") + field(7, field(1, base64.b64encode(seq(1))) + field(2, bytes.fromhex("fd00000000000000000000000000000a"))
             + field(3, field(1, bytes([10, 244, 0, 0])) + field(2, 24)) + field(4, field(1, bytes([10, 0, 0, 0])) + field(2, 8)))
             + field(8, field(1, 6443)))
affiliate_sealed = nonce + AESGCM(secret).encrypt(nonce, affiliate, None)


def endpoint(ip, port):
    m = field(1, ip) + field(2, port)
    m = bytes([len(m)]) + m
    m += bytes(-len(m) % 16)
    e = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()
    return e.update(m) + e.finalize()


b64 = lambda b: base64.b64encode(b).decode()
print(json.dumps({
    "secret": b64(secret),
    "verifier_seed": hkdf(secret, b"discovery verifier").hex(), "verifier": verifier_public.hex(),
    "data_key": data_key.hex(), "mesh_psk": hkdf(secret, b"mesh psk").hex(),
    "cluster_id": "t1-" + base32hex(cluster),
    "member_seed": b64(seq(0x40)), "member": member_public.hex(), "member_id": base32hex(member_id),
    "old_member_seed": b64(seq(0x80)), "old_member_id": base32hex(old_id),
    "admission": admission.hex(),
    "version": version, "ttl": ttl, "nonce": nonce.hex(), "plain": plain.hex(),
    "entry": entry(version, ttl, sealed, 0, b"").hex(),
    "entry_with_succession": entry(version, ttl, sealed, 0, succession).hex(),
    "wireguard_private": b64(wg_private), "proof_random": proof_random.hex(),
    "mesh_plain": mesh_plain.hex(), "entry_for_the_mesh": entry(version, ttl, mesh_sealed, 0, b"").hex(),
    "removal": entry(version + 1, ttl, b"", 1, b"").hex(),
    "challenge": challenge.hex(), "software": "tombolo/1.0.0",
    "proof": (field(2, verifier_public) + field(3, verifier.sign(proof_message)) + field(4, member_public) + field(5, admission)
              + field(6, member.sign(proof_message)) + field(7, "tombolo/1.0.0")).hex(),
    "proof_of_a_watcher": (field(2, verifier_public) + field(3, verifier.sign(proof_message)) + field(7, "tombolo/1.0.0")).hex(),
    "affiliate_plain": affiliate.hex(), "affiliate": affiliate_sealed.hex(),
    "endpoints": {
        "10.0.0.5:51820": endpoint(bytes([10, 0, 0, 5]), 51820).hex(),
        "192.0.2.1:1": endpoint(bytes([192, 0, 2, 1]), 1).hex(),
        "[2001:db8::5]:51820": endpoint(bytes.fromhex("20010db8000000000000000000000005"), 51820).hex(),
    },
}, indent=1))
