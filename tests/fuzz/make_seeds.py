#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus whose format is binary: what an honest peer sends, as
docs/protocol describes it. Where a format has a checksum, its target computes it. Seeds of texts
are written by hand; further inputs in the corpus are those that once broke something."""
import pathlib
import random
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def seed(target, name, *parts):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"".join(parts))


def text(value):
    return struct.pack("<H", len(value)) + value


def address(port, v6=0):
    return bytes([10, 0, 0, 1]) + bytes(12) + struct.pack("<BH", v6, port)


def claim(purpose, rank, target, index, tls=0):
    return struct.pack("<IiiIQQ", purpose, rank, target, index, 77, tls)


def handshake():
    nonce = bytes(range(32))
    hello = b"hocket" + struct.pack("<H", 4) + nonce
    proofs = bytes(64)
    right = claim(5, 1, 0, 2)
    seed("handshake", "right-key", bytes([1, 0]), hello, right, proofs)
    seed("handshake", "in-two-parts", bytes([1, 10]), hello, right, proofs)
    seed("handshake", "wrong-key", bytes([0, 0]), hello, right, proofs)
    seed("handshake", "other-key-of-the-job", bytes([4, 0]), hello, right, proofs)
    seed("handshake", "not-expected", bytes([1, 0]), hello, claim(5, 1, 0, 9), proofs)
    seed("handshake", "unknown-purpose", bytes([1, 0]), hello, claim(9, 1, 0, 0), proofs)
    client_hello = bytes([22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3]) + nonce
    client_hello += bytes([0, 0, 2, 19, 1, 1, 0])
    seed("handshake", "tls", bytes([1, 0]), hello, claim(5, 1, 0, 2, 1), proofs, client_hello)
    seed("handshake", "other-version", bytes([1, 0]), b"hocket", struct.pack("<H", 3), nonce,
         right, proofs)
    seed("handshake", "foreign", bytes([1, 0]), b"GET / HTTP/1.1\r\n\r\n")
    for verdict in range(5):
        seed("dialer", f"verdict-{verdict}", bytes([1, 10, verdict, 2]), hello, bytes(40))
    seed("dialer", "wrong-key", bytes([0, 10, 0, 2]), hello, bytes(40))
    seed("dialer", "foreign", bytes([1, 10, 0, 2]), b"HTTP/1.1 400 Bad Request\r\n\r\n")


def control():
    request = struct.pack("<iiiQq", 1, 2, 4321, 5, 60000) + text(b"node1") + address(4000)
    request += struct.pack("<Q", 99) + bytes([1, 0x0f, 1])
    failure = struct.pack("<Ii", 6, 1) + text(b"rank 1 did not join")
    position = struct.pack("<iiii", 1, 2, 4, 0) + address(4000, 1)
    member = struct.pack("<ii", 0, 11) + address(4001) + struct.pack("<Q", 99) + bytes([1, 3])
    other = struct.pack("<ii", 1, 12) + address(4002) + struct.pack("<Q", 98) + bytes([0])
    table = bytes(32) + struct.pack("<II", 3, 2) + struct.pack("<i", 0) + text(b"a")
    table += struct.pack("<i", 2) + text(b"b") + member + member + other
    fault = struct.pack("<BiQQI", 4, 1, 77, 5, 100) + text(b"counts differ") + struct.pack("<i", 0)
    bodies = [request, failure, position, table, fault, claim(1, 3, -1, 0)]
    for kind, body in enumerate(bodies):
        seed("control_message", str(kind), bytes([kind, 2]), body)
    frames = b"".join(struct.pack("<IHH", len(b), 1 + k, 0) + b for k, b in enumerate(bodies))
    seed("control_connection", "whole", bytes([255]), frames)
    seed("control_connection", "in-pieces", bytes([4]), frames)
    seed("control_connection", "too-long", bytes([9]), frames, struct.pack("<IHH", 301, 1, 0))
    seed("control_connection", "descriptors", bytes([9]), struct.pack("<IHH", 0, 7, 1))


def frames():
    for kind in range(10):
        length = 56 if kind == 5 else 100 if kind == 1 else 0
        header = struct.pack("<IBBHQQIIQQ", 0x31746B68, 3, kind, 2, 0x5EED, 1, 3, 0, 0, 100)
        header += bytes(48) + struct.pack("<IIII", length, 0, 0, 0)
        seed("frame_header", f"kind-{kind}", bytes([1]), header)
    # Sequences of operations, which the targets read byte by byte.
    generator = random.Random(13)
    for number in range(6):
        for target in ("message_matcher", "tcp_stream", "fifo", "reduce"):
            size = generator.choice([40, 150, 400])
            seed(target, f"random-{number}", bytes(generator.choices(range(256), k=size)))
    # Post a receive of 100 bytes; two frames of an eager message, of which one is of 100 bytes.
    frame = bytes([1, 2, 0, 0, 2, 2, 0, 0])
    seed("message_matcher", "eager", bytes([0, 2, 1]), bytes([4, 0]), frame, bytes([0]))
    seed("message_matcher", "unexpected", bytes([4, 0]), frame, bytes([0, 0, 2, 1]))
    seed("tcp_stream", "eager", bytes([50, 1, 1, 1, 1, 1]), frame + b"x")


def ids():
    body = b"hocketID" + struct.pack("<HH", 1, 1) + bytes(range(48)) + address(4000)
    whole = body + bytes(128 - len(body))
    for form in (1, 2, 3):
        seed("unique_id", f"form-{form}", bytes([form]), whole)
    seed("unique_id", "text", bytes([0]), b"k", whole.hex().encode())
    answer = b"hocketR0" + bytes([1, 2]) + bytes(range(16)) + address(4000) + text(b"MUNGE:AwQ:")
    seed("rank0_answer", "munge", answer)
    record = b"hocketLR" + struct.pack("<IIiiiI", 1, 104, 1, 4, -1, 0) + bytes(16)
    record += struct.pack("<HB5x", 4000, 0) + bytes(range(48))
    seed("launch_record", "record", bytes([0]), record)
    seed("launch_record", "key", bytes([1]), b"0123456789abcdef" * 4, b"\n")


def launch_messages():
    def long_text(value):
        return struct.pack("<I", len(value)) + value

    def texts(*values):
        return struct.pack("<I", len(values)) + b"".join(long_text(value) for value in values)

    start = bytes(range(48)) + address(4000) + struct.pack("<I", 0)
    start += struct.pack("<Iiii", 3, 0, 2, 5) + struct.pack("<iBBHH", 6, 1, 1, 24, 80)
    start += struct.pack("<BBiiBB", 1, 2, 3, 2, 1, 1)
    start += long_text(b"/tmp") + struct.pack("<I", 2)
    start += struct.pack("<i", 1) + texts(b"a", b"") + struct.pack("<i", 2) + texts(b"b")
    start += texts(b"X=1")
    hello = struct.pack("<Ii", 7, 77) + long_text(b"a") + long_text(b"10.0.0.2 5 10.0.0.1 22")
    counted = struct.pack("<i", 4)
    seed("launch_message", "start", bytes([0]), start)
    listen = long_text(b"eth0") + bytes([1]) + texts(b"10.0.0.1") + texts(b"b", b"c")
    seed("launch_message", "listen", bytes([1]), listen)
    seed("launch_message", "count", bytes([2, 4]))
    seed("launch_message", "counted", bytes([3]), counted)
    exited = struct.pack("<iii", 3, 99, 9) + long_text(b"no program")
    seed("launch_message", "exited", bytes([4]), exited)
    seed("launch_message", "hello", bytes([5]), hello)
    frames = struct.pack("<IB", len(hello), 64) + hello + struct.pack("<IB", 4, 71) + counted
    seed("launch_message", "frames", bytes([6]), b"Welcome\n\x01HOCKET-AGENT\x02\r\n", frames)


def checkpoints():
    def tensor(name, sizes):
        head = struct.pack("<I", len(name)) + name + struct.pack("<BBBB", 7, len(sizes), 0, 0)
        return head + b"".join(struct.pack("<q", size) for size in sizes)

    piece = struct.pack("<IIQQ", 0, 0, 64, 6)
    metadata = struct.pack("<I", 1) + struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b"
    body = b"HKTCKPTM" + struct.pack("<IIQQQ", 1, 1, 5, 0, 1) + struct.pack("<Q", 88) + metadata
    body += tensor(b"weight", [2, 3]) + struct.pack("<I", 1) + piece + bytes(4)
    seed("checkpoint_manifest", "manifest", bytes([1]), body)
    seed("checkpoint_manifest", "metadata", bytes([2]), metadata)
    strided = struct.pack("<I", 1) + b"w" + struct.pack("<BBBBqqqq", 7, 2, 1, 0, 2, 3, 1, 2)
    ranges = struct.pack("<Q", 2) + tensor(b"weight", [2, 3]) + struct.pack("<QQ", 0, 6)
    seed("checkpoint_manifest", "ranges", bytes([3]), ranges, strided, struct.pack("<QQ", 1, 2))
    header = b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":'
    header += b'[0,24]},"b":{"dtype":"U8","shape":[],"data_offsets":[24,25]}}  '
    seed("safetensors", "two-tensors", struct.pack("<H", 25), header)
    seed("safetensors", "none", struct.pack("<H", 0), b"{}")


for write in (handshake, control, frames, ids, launch_messages, checkpoints):
    write()
