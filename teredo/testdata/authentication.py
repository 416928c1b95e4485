# Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0
#
# Writes authentication.txt: authentication values of Teredo (RFC 4380 section
# 5.2.2) as Python's hmac computes them. Each line is
#   situation | algorithm | secret | nonce | confirmation | origin | IPv6 | value
# Run: python3 authentication.py >authentication.txt

import hmac
import socket
import struct


def checksum(source, target, body):
    b = source + target + struct.pack(">IHBB", len(body), 0, 0, 58) + body
    total = sum(struct.unpack(">%dH" % (len(b) // 2), b))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~total & 0xFFFF)


def icmpv6(source, target, kind, body):
    source = socket.inet_pton(socket.AF_INET6, source)
    target = socket.inet_pton(socket.AF_INET6, target)
    sum_ = checksum(source, target, bytes([kind, 0, 0, 0]) + body)
    message = bytes([kind, 0]) + sum_ + body
    return struct.pack(">IHBB", 0x60000000, len(message), 58, 255) + source + target + message


client, server = "fe80::8:1234:5678:9abc", "fe80::8000:f227:34ff:8efe"
solicitation = icmpv6(client, "ff02::2", 133, bytes(4))
prefix = bytes([3, 4, 64, 0x40]) + b"\xff" * 8 + bytes(4) + socket.inet_pton(socket.AF_INET6, "2001:0:cb00:7101::")
mtu = bytes([5, 1, 0, 0]) + struct.pack(">I", 1280)
advertisement = icmpv6(server, client, 134, bytes(8) + struct.pack(">I", 2000) + prefix + mtu)
nonce = bytes.fromhex("0102030405060708")
origin = b"\0\0" + struct.pack(">H", 4096 ^ 0xFFFF) + bytes(b ^ 0xFF for b in (198, 51, 100, 7))

for length, secret in (("short", b"correct horse battery staple"), ("longer than a block", bytes(range(100)))):
    for algorithm, digest in (("hmac-sha1", "sha1"), ("hmac-sha256", "sha256")):
        for what, confirmation, before, packet in (
            ("solicitation", 0, b"", solicitation),
            ("advertisement, key valid", 0, origin, advertisement),
            ("advertisement, key expired", 1, origin, advertisement),
        ):
            text = nonce + bytes([confirmation]) + before + packet
            value = hmac.new(secret, text, digest).digest()
            fields = secret, nonce, bytes([confirmation]), before, packet, value
            print(" | ".join([what + ", secret " + length, algorithm] + [f.hex() for f in fields]))
