"""Engines as the oracle sees them: made of libzmq and msgpack, with the truth about
their caches on standard output.

    engines.py N

First line: JSON, a list of {"http", "events", "replay"} ports. Then one line for each change:

    ENGINE PROBE BLOCKS LIFE NEXT TIME

BLOCKS is how much of that probe's prompt the engine holds from TIME (Unix seconds) on, when NEXT
is the number that its next batch will have. LIFE is when it began, in Unix milliseconds. Lines
on standard input: "restart ENGINE", "rest" (nothing changes any more),
"work", "end".
"""

import http.server
import json
import random
import sys
import threading
import time
from collections import deque

import msgspec
import zmq

PROBES, MOST, BLOCK, RING = 4, 24, 16, 200
rng = random.Random(1)
pack = msgspec.msgpack.Encoder().encode


def tokens(probe, block):
    """What the test sends for the same block."""
    return [32 + (probe * 31 + block * 7 + j * (probe + 3)) % 90 for j in range(BLOCK)]


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # who asked is gone


class Engine:
    def __init__(self, n, ctx):
        self.n, self.ring, self.work, self.ctx = n, deque(maxlen=RING), True, ctx
        self.pub, self.router = ctx.socket(zmq.PUB), ctx.socket(zmq.ROUTER)
        self.events = self.pub.bind_to_random_port("tcp://127.0.0.1")
        self.replay = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.start()
        engine = self

        class Page(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body, kind = engine.page(self.path)
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = Server(("127.0.0.1", 0), Page)
        self.http = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def start(self):
        self.seq, self.held, self.began, self.made = 0, [0] * PROBES, time.time(), 0
        self.ring.clear()

    def page(self, path):
        if path == "/metrics":
            labels = '{model_name="grapevine-sim"}'
            return (
                f"vllm:num_requests_running{labels} {1 if self.work else 0}\n"
                f"vllm:num_requests_waiting{labels} 0\n"
                f"vllm:kv_cache_usage_perc{labels} 0.5\n"
                f"vllm:generation_tokens_total{labels} {self.made}\n"
                'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1\n'
                f"process_start_time_seconds {self.began}\n"
            ).encode(), "text/plain; version=0.0.4"
        if path == "/v1/models":
            return b'{"object":"list","data":[{"id":"grapevine-sim","object":"model"}]}', "application/json"
        return (b"ok", "text/plain") if path == "/health" else (b"", "text/plain")

    def name(self, probe, block):
        return (self.n + 1) * 1_000_003 + probe * 1009 + block * 7 + 1

    def step(self):
        probe, events = rng.randrange(PROBES), []
        have = self.held[probe]
        if have < MOST and rng.random() < 0.6:
            more = min(MOST - have, rng.randrange(1, 5))
            ids = [t for b in range(have, have + more) for t in tokens(probe, b)]
            events.append(["BlockStored", [self.name(probe, b) for b in range(have, have + more)],
                           self.name(probe, have - 1) if have else None, ids, BLOCK, None, "GPU", None])
            self.held[probe] += more
        elif have:
            keep = rng.randrange(have)
            events.append(["BlockRemoved", [self.name(probe, b) for b in reversed(range(keep, have))], "GPU"])
            self.held[probe] = keep
        self.made += 16
        now = time.time()
        payload = pack([now, events, 0])
        self.ring.append((self.seq, payload))
        self.pub.send_multipart((b"", self.seq.to_bytes(8, "big"), payload))
        self.seq += 1
        self.tell(probe, now)

    def tell(self, probe, now):
        print(self.n, probe, self.held[probe], round(self.began * 1000), self.seq, repr(now), flush=True)

    def restart(self):
        """As a process that dies does: its connections break."""
        poller.unregister(self.router)
        self.pub.close(0), self.router.close(0)
        self.start()
        time.sleep(0.2)
        self.pub, self.router = self.ctx.socket(zmq.PUB), self.ctx.socket(zmq.ROUTER)
        self.bind(self.pub, self.events), self.bind(self.router, self.replay)
        poller.register(self.router, zmq.POLLIN)
        for probe in range(PROBES):
            self.tell(probe, time.time())

    def bind(self, socket, port):
        while True:
            try:
                return socket.bind(f"tcp://127.0.0.1:{port}")
            except zmq.ZMQError:  # the old one is not gone yet
                time.sleep(0.01)

    def answer(self):
        frames = self.router.recv_multipart()
        if len(frames) == 3:
            first = int.from_bytes(frames[2], "big")
            for seq, payload in self.ring:
                if seq >= first:
                    self.router.send_multipart((frames[0], b"", b"", seq.to_bytes(8, "big"), payload))
            self.router.send_multipart((frames[0], b"", b"", (-1).to_bytes(8, "big", signed=True), b""))


ctx = zmq.Context()
engines = [Engine(n, ctx) for n in range(int(sys.argv[1]))]
print(json.dumps([{"http": e.http, "events": e.events, "replay": e.replay} for e in engines]), flush=True)
for e in engines:
    for probe in range(PROBES):
        e.tell(probe, e.began)
commands = open(0, "rb", buffering=0)  # nothing is read ahead of what the poller sees
poller = zmq.Poller()
poller.register(0, zmq.POLLIN)
for e in engines:
    poller.register(e.router, zmq.POLLIN)
due = time.monotonic()
while True:
    ready = dict(poller.poll(max(0, int((due - time.monotonic()) * 1000))))
    for e in engines:
        if e.router in ready:
            e.answer()
    if 0 in ready:
        words = commands.readline().decode().split()
        if not words:
            sys.exit(0)
        if words[0] == "restart":
            engines[int(words[1])].restart()
        elif words[0] == "end":
            print("end", flush=True)
            sys.exit(0)
        else:
            for e in engines:
                e.work = words[0] == "work"
    if time.monotonic() >= due:
        due = time.monotonic() + 0.05
        for e in engines:
            if e.work:
                e.step()
