"""A publisher with the parts of a vLLM engine that event streams show: a block
pool with hash chains and LRU eviction, msgspec event structs, a PUB socket, a
bounded ring of past batches and a replay ROUTER with libzmq's defaults.

    engine.py PUB_ENDPOINT REPLAY_ENDPOINT array|map STEPS_BEFORE SEED [TOPIC]

PUB_ENDPOINT "dial ENDPOINT" connects to a subscriber that is bound.

Commands on stdin, one per line; each answers with one line on stdout:

    step N      run N scheduler steps, one batch each
    lose N      the same, but the batches reach only the ring
    slow N      N steps, a millisecond apart
    clear       reset the prefix cache
    truth       the hashes in the cache, as JSON, and the next sequence number
"""

import json
import random
import sys
import time
from collections import OrderedDict, deque
from typing import Optional, Union

import msgspec
import zmq

pub_endpoint, replay_endpoint, form, steps_before, seed = sys.argv[1:6]
topic = sys.argv[6].encode() if len(sys.argv) > 6 else b""
AS_MAP = form == "map"
BLOCK = 16
CAPACITY = 600
BUFFER_STEPS = 10_000
END = (-1).to_bytes(8, "big", signed=True)


class Stored(msgspec.Struct, array_like=not AS_MAP, omit_defaults=True, tag="BlockStored"):
    block_hashes: list[int]
    parent_block_hash: Optional[int]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list] = None
    group_idx: Optional[int] = None


class Removed(msgspec.Struct, array_like=not AS_MAP, omit_defaults=True, tag="BlockRemoved"):
    block_hashes: list[int]
    medium: Optional[str]
    group_idx: Optional[int] = None


class Cleared(msgspec.Struct, array_like=not AS_MAP, omit_defaults=True, tag="AllBlocksCleared"):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[Union[Stored, Removed, Cleared]]
    data_parallel_rank: Optional[int] = None


rng = random.Random(int(seed))
salt = rng.getrandbits(64)  # a random root, as without PYTHONHASHSEED
cache: OrderedDict[int, None] = OrderedDict()  # hash -> None, least recently used first
children: dict[int, int] = {}  # hash -> blocks that follow
parent_of: dict[int, int] = {}
prompts: list[list[int]] = []


def chain(tokens):
    out, h = [], salt
    for i in range(0, len(tokens) - BLOCK + 1, BLOCK):
        h = hash((h, tuple(tokens[i : i + BLOCK]))) & 0xFFFFFFFFFFFFFFFF
        out.append(h)
    return out


def step():
    events = []
    if rng.random() < 0.7 and prompts:
        base = rng.choice(prompts)
        tokens = base[: rng.randrange(len(base))] + [rng.randrange(50_000) for _ in range(rng.randrange(200))]
    else:
        tokens = [rng.randrange(50_000) for _ in range(rng.randrange(16, 400))]
    prompts.append(tokens)
    if len(prompts) > 40:
        prompts.pop(0)
    hashes = chain(tokens)
    hit = 0
    while hit < len(hashes) and hashes[hit] in cache:
        hit += 1
    for h in reversed(hashes[:hit]):
        cache.move_to_end(h)
    new = hashes[hit:]
    while len(cache) + len(new) > CAPACITY:
        victim = next(h for h in cache if not children.get(h) and h not in hashes[:hit])
        del cache[victim]
        p = parent_of.pop(victim, None)
        if p is not None:
            children[p] -= 1
        events.append(Removed([victim], "GPU", 0))
    if new:
        for i, h in enumerate(new):
            cache[h] = None
            children[h] = 0
            p = hashes[hit + i - 1] if hit + i else None
            if p is not None:
                parent_of[h] = p
                children[p] += 1
        for h in reversed(new):
            cache.move_to_end(h)
        events.append(
            Stored(new, hashes[hit - 1] if hit else None, tokens[hit * BLOCK : len(hashes) * BLOCK], BLOCK, None,
                   "GPU", None, [None] * len(new), 0)
        )
    return events


ctx = zmq.Context()
pub = ctx.socket(zmq.PUB)
pub.set_hwm(100_000)
if pub_endpoint.startswith("dial "):
    pub.connect(pub_endpoint.removeprefix("dial "))
else:
    pub.bind(pub_endpoint)
replay = ctx.socket(zmq.ROUTER)
replay.bind(replay_endpoint)
buffer = deque(maxlen=BUFFER_STEPS)
pack = msgspec.msgpack.Encoder().encode
seq = 0


def publish(events, lost=False):
    global seq
    payload = pack(Batch(time.time(), events, 0))
    buffer.append((seq, payload))
    if not lost:
        pub.send_multipart((topic, seq.to_bytes(8, "big"), payload))
    seq += 1


def service_replay():
    frames = replay.recv_multipart()
    if len(frames) != 3:
        return
    client, _, start = frames
    first = int.from_bytes(start, "big")
    for n, payload in buffer:
        if n >= first:
            replay.send_multipart((client, b"", b"", n.to_bytes(8, "big"), payload))
    replay.send_multipart((client, b"", b"", END, b""))


poller = zmq.Poller()
poller.register(replay, zmq.POLLIN)
poller.register(sys.stdin, zmq.POLLIN)
for _ in range(int(steps_before)):  # before anybody looked: only the ring knows
    publish(step(), lost=True)
print("ready", flush=True)

while True:
    for sock, _ in poller.poll():
        if sock is replay:
            service_replay()
            continue
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        words = line.split()
        if words[0] in ("step", "lose", "slow"):
            for _ in range(int(words[1])):
                publish(step(), words[0] == "lose")
                if words[0] == "slow":
                    time.sleep(0.001)
                if replay.poll(0):
                    service_replay()
            print("ok", flush=True)
        elif words[0] == "clear":
            cache.clear(), children.clear(), parent_of.clear()
            publish([Cleared()])
            print("ok", flush=True)
        elif words[0] == "truth":
            print(json.dumps({"hashes": [str(h) for h in cache], "next": seq}), flush=True)
