"""A libzmq socket for the interoperability tests.

    peer.py TYPE bind|connect ENDPOINT [COUNT]

Prints the bound port, or "ready", then does what its type does:

    PUB     sends probes of two frames until a line comes on stdin, then COUNT
            messages of three frames (topic, 8-byte number, payload), then
            waits for stdin to close
    SUB     subscribes to "kv@10.0.0.1@" and prints topic, number and payload
            size of COUNT messages
    ROUTER  answers each [identity, "", start] with COUNT replies and an end
    DEALER  sends ["", start] and prints every reply up to the end marker
    REQ     sends [start] and prints one reply
"""

import select
import sys

import zmq

kind, how, endpoint = sys.argv[1:4]
count = int(sys.argv[4]) if len(sys.argv) > 4 else 0
END = b"\xff" * 8

ctx = zmq.Context()
sock = ctx.socket(getattr(zmq, kind))
sock.setsockopt(zmq.LINGER, 2000)
sock.setsockopt(zmq.IPV6, 1)
for opt in (zmq.SNDHWM, zmq.RCVHWM):
    sock.setsockopt(opt, 100000)
sock.setsockopt(zmq.HEARTBEAT_IVL, 200)
sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3000)
sock.setsockopt(zmq.RCVTIMEO, 60000)

if kind == "SUB":
    sock.setsockopt(zmq.SUBSCRIBE, b"kv@10.0.0.1@")
if how == "bind":
    sock.bind(endpoint)
    print(sock.getsockopt(zmq.LAST_ENDPOINT).decode(), flush=True)
else:
    sock.connect(endpoint)
    print("ready", flush=True)

if kind == "PUB":
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        sock.send_multipart([b"kv@10.0.0.1@m", b"probe"])
    sys.stdin.readline()
    for i in range(count):
        topic = b"kv@10.0.0.1@m" if i % 2 == 0 else b"kv@10.0.0.11@m"
        sock.send_multipart([topic, i.to_bytes(8, "big"), bytes([i % 256]) * (i % 2000)])
    sys.stdin.read()
elif kind == "SUB":
    for _ in range(count):
        topic, num, payload = sock.recv_multipart()
        print(topic.decode(), int.from_bytes(num, "big"), len(payload), flush=True)
elif kind == "ROUTER":
    while True:
        ident, empty, start = sock.recv_multipart()
        first = int.from_bytes(start, "big")
        for i in range(first, first + count):
            sock.send_multipart([ident, b"", b"topic", i.to_bytes(8, "big"), b"p" * 300])
        sock.send_multipart([ident, b"", b"", END, b""])
elif kind == "DEALER":
    sock.send_multipart([b"", (7).to_bytes(8, "big")])
    while True:
        frames = sock.recv_multipart()
        print(len(frames), int.from_bytes(frames[-2], "big"), len(frames[-1]), flush=True)
        if frames[-2] == END:
            break
elif kind == "REQ":
    sock.send((9).to_bytes(8, "big"))
    frames = sock.recv_multipart()
    print(len(frames), int.from_bytes(frames[-2], "big"), len(frames[-1]), flush=True)

sock.close()
ctx.term()
