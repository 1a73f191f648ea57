#!/usr/bin/env python3
"""Speaks Ebb's protocol by hand, and says what it wants: what a program does that was not written by us.

Usage: peer.py ADDRESS [OPTION...] [CALL [TEXT]]
  --identity FILE   certificate and key, as in a cluster's directory; without it, none is shown
  --cluster HEX, --host NAME, --role ROLE   what the hello says; otherwise as in the certificate
  --bare            no TLS: the frames as they are
  --first CALL TEXT   a call before; what it answers may be used in TEXT, as {session}
CALL is a name in method.rs, TEXT its message as protoc(1) reads it. Prints the answer, or `refused: SENTENCE` and ends with 3.
"""
import argparse
import re
import socket
import ssl
import struct
import subprocess
import sys

WIRE = "/srv/hosts/wire"
REQUEST, REPLY, FAILURE, HELLO = 1, 2, 3, 4
PROTOCOL = 2


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def protoc(way, message, data):
    files = subprocess.run(["sh", "-c", f"ls {WIRE}/proto/*.proto"], capture_output=True, text=True).stdout.split()
    command = ["protoc", f"--{way}=ebb.{message}", f"-I{WIRE}/proto", *files]
    done = subprocess.run(command, input=data, capture_output=True)
    if done.returncode:
        sys.exit(f"protoc: {done.stderr.decode()}")
    return done.stdout


def refuse(sentence):
    print(f"refused: {sentence}")
    sys.exit(3)


class Peer:
    def __init__(self, stream):
        self.stream = stream
        self.request = 0

    def send(self, kind, method, message):
        self.request += kind == REQUEST
        head = struct.pack("<4sBBHQIII", b"EBB1", 1, kind, method, self.request, len(message), 0, 10_000)
        self.stream.sendall(head + struct.pack("<I", crc32c(head)) + message)

    def take(self, count):
        data = b""
        while len(data) < count:
            more = self.stream.recv(count - len(data))
            if not more:
                refuse("the connection was closed")
            data += more
        return data

    def receive(self):
        head = self.take(32)
        kind, message, payload = head[5], *struct.unpack("<II", head[16:24])
        return kind, self.take(message), self.take(payload)

    def answer(self, message):
        """The next answer, as text, and the bytes that follow it."""
        kind, data, payload = self.receive()
        if kind == FAILURE:
            refuse(protoc("decode", "Failure", data).decode().replace("\n", " "))
        return protoc("decode", message, data).decode(), payload

    def call(self, name, text):
        found = re.search(rf"^ +{name} = (\d+), (\w+),", open(f"{WIRE}/src/method.rs").read(), re.M)
        if not found:
            sys.exit(f"there is no call {name}")
        self.send(REQUEST, int(found[1]), protoc("encode", name, text.encode()))
        return self.answer(found[2])


def subject(identity):
    """Cluster, role and host of a certificate."""
    shown = subprocess.run(["openssl", "x509", "-in", identity, "-noout", "-text"], capture_output=True, text=True).stdout
    cluster, role, host = re.search(r"URI:ebb://([0-9a-f]+)/([\w-]+)(?:\?(?:.*&)?host=([^&,\s]+))?", shown).groups()
    return cluster, role, host or "anywhere"


def connect(options):
    host, port = options.address.rsplit(":", 1)
    stream = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
    if options.bare:
        return stream
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # It wants to talk to whoever is there.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["ebb"])
    if options.identity:
        context.load_cert_chain(options.identity)
    return context.wrap_socket(stream)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    for name in ("identity", "cluster", "host", "role"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--first", nargs=2)
    parser.add_argument("call", nargs="?", default="ClusterStatus")
    parser.add_argument("text", nargs="?", default="")
    options = parser.parse_intermixed_args()
    own = subject(options.identity) if options.identity else ("1", "operator", "anywhere")
    cluster, role, host = options.cluster or own[0], options.role or own[1], options.host or own[2]
    try:
        peer = Peer(connect(options))
        hello = f'protocol: {PROTOCOL} cluster: {int(cluster, 16)} host: "{host}" role: "{role}"'
        peer.send(HELLO, 0, protoc("encode", "ClientHello", hello.encode()))
        peer.answer("ServerHello")
        text = options.text
        if options.first:
            answer, _ = peer.call(*options.first)
            for field in re.findall(r"{(\w+)}", text):
                text = text.replace(f"{{{field}}}", re.search(rf"\b{field}: (\d+)", answer)[1])
        answer, payload = peer.call(options.call, text)
        print(answer, end="")
        sys.stdout.flush()
        sys.stdout.buffer.write(payload)
    except OSError as error:
        refuse(error)


main()
