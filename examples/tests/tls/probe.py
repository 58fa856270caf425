#!/usr/bin/env python3
"""A client of RPC-with-TLS (RFC 9289) on the standard library's `ssl`.

usage: probe.py [OPTIONS] HOST PORT PROGRAM VERSION STEP..

The steps are taken in order on one connection. Each prints a line. The first one that ends the connection is the last.

  probe[=PROC]    the AUTH_TLS probe; with a procedure other than 0, it is not valid
  tls             the handshake; prints the version and the application protocol
  null            a NULL call without a credential
  call=PROC[:HEX] a call with AUTH_SYS as user 0, and these arguments; prints the results in hexadecimal
  send=null       sends a NULL call and reads nothing, in the same segment as the next message; also send=probe
  end             reads until the server closes the connection
  close           closes the session with an alert, and waits for that of the server
"""

import argparse
import re
import socket
import ssl
import struct
import sys

# RFC 5531 section 9, RFC 9289 section 7.
AUTH_NONE, AUTH_SYS, AUTH_TLS = 0, 1, 7
ACCEPT_STATS = ["success", "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR"]
AUTH_STATS = {1: "AUTH_BADCRED", 2: "AUTH_REJECTEDCRED", 3: "AUTH_BADVERF", 5: "AUTH_TOOWEAK"}
# Far longer than any step takes, so that it holds on a busy machine.
TIME_LIMIT = 300
MAX_RECORD = 1 << 20


class Closed(Exception):
    """The connection has ended."""


def words(*numbers):
    return struct.pack(f">{len(numbers)}I", *numbers)


def opaque(data):
    return words(len(data)) + data + bytes(-len(data) % 4)


class Connection:
    def __init__(self, options):
        self.options = options
        self.stream = socket.create_connection((options.host, options.port), TIME_LIMIT)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.xid = 0x70790000
        self.held = b""

    def call(self, procedure, flavor, body=b"", arguments=b""):
        """Returns the record of a call."""
        self.xid += 1
        head = words(self.xid, 0, 2, self.options.program, self.options.version, procedure)
        message = head + words(flavor) + opaque(body) + words(AUTH_NONE, 0) + arguments
        return words(1 << 31 | len(message)) + message

    def send(self, record):
        data, self.held = self.held + record, b""
        try:
            self.stream.sendall(data)
        except OSError as error:
            raise Closed(reason(error)) from error

    def receive(self, length):
        data = b""
        while len(data) < length:
            try:
                more = self.stream.recv(length - len(data))
            except OSError as error:
                raise Closed(reason(error)) from error
            if not more:
                raise Closed(f"the end after {len(data)} bytes")
            data += more
        return data

    def reply(self):
        """Returns the verifier, the status and the results of a reply."""
        (mark,) = struct.unpack(">I", self.receive(4))
        length = mark & 0x7FFFFFFF
        if not mark >> 31 or length > MAX_RECORD:
            raise Closed(f"an unexpected record mark: {mark:#x}")
        message = self.receive(length)
        xid, kind, outcome, first, second = struct.unpack(">5I", message[:20])
        if (xid, kind) != (self.xid, 1):
            raise Closed(f"not the reply to the call: {xid:#x}, {kind}")
        if outcome == 1:
            stat = AUTH_STATS.get(second, second) if first == 1 else "RPC_MISMATCH"
            return b"", f"denied, {stat}", b""
        verifier, rest = message[20 : 20 + second], message[20 + second + -second % 4 :]
        (stat,) = struct.unpack(">I", rest[:4])
        return (first, verifier), ACCEPT_STATS[stat], rest[4:]

    def step(self, name, value):
        """Takes a step, and returns what happened."""
        if name == "probe":
            self.send(self.call(int(value or 0), AUTH_TLS))
            verifier, status, results = self.reply()
            if verifier == (AUTH_NONE, b"STARTTLS") and not results:
                return f"{status}, STARTTLS"
            return status
        if name == "tls":
            return self.handshake()
        if name == "null":
            self.send(self.call(0, AUTH_NONE))
            return self.reply()[1]
        if name == "call":
            procedure, _, arguments = value.partition(":")
            user = words(0) + opaque(b"python") + words(0, 0, 0)
            self.send(self.call(int(procedure), AUTH_SYS, user, bytes.fromhex(arguments)))
            _, status, results = self.reply()
            return f"{status} {results.hex()}".rstrip()
        if name == "send":
            self.held += self.call(0, {"null": AUTH_NONE, "probe": AUTH_TLS}[value])
            return "held"
        if name == "end":
            self.send(b"")
            self.receive(MAX_RECORD)
        if name == "close":
            try:
                self.stream = self.stream.unwrap()
            except OSError as error:
                raise Closed(reason(error)) from error
            return "closed by both"
        raise SystemExit(f"no such step: {name}")

    def handshake(self):
        options = self.options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(options.ca)
        if options.cert:
            context.load_cert_chain(options.cert, options.key)
        if options.alpn:
            context.set_alpn_protocols(options.alpn)
        if options.tls12:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        if self.held:
            self.send(b"")
        try:
            self.stream = context.wrap_socket(self.stream, server_hostname=options.host)
        except OSError as error:
            raise Closed(reason(error)) from error
        return f"{self.stream.version()} {self.stream.selected_alpn_protocol()}"


def reason(error):
    """Names an alert of the server by its name in RFC 8446, and other errors by their kind."""
    alert = re.search(r"\balert ([a-z0-9 ]*[a-z])", str(error))
    if alert:
        return f"alert {alert[1]}"
    # How a stream ends depends on what the server had not read.
    ends = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    return "the end after 0 bytes" if isinstance(error, ends) else f"{type(error).__name__}: {error}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--ca")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--alpn", action="append", default=[])
    parser.add_argument("--tls12", action="store_true")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("program", type=lambda text: int(text, 0))
    parser.add_argument("version", type=int)
    parser.add_argument("steps", nargs="+")
    connection = Connection(options := parser.parse_args())
    for step in options.steps:
        name, _, value = step.partition("=")
        try:
            print(f"{name}: {connection.step(name, value)}", flush=True)
        except Closed as closed:
            print(f"{name}: {closed}")
            return
    connection.stream.close()


if __name__ == "__main__":
    sys.exit(main())
