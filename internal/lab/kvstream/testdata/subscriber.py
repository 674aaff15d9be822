"""Reads three live batches and replays them, with libzmq and msgspec.

argv: PUB endpoint, replay endpoint, "map" or "array". stdout: what was seen, as JSON.
"""
import json
import sys
from typing import Any, Optional, Union

import msgspec
import zmq

AS_ARRAY = sys.argv[3] == "array"


class Base(msgspec.Struct, array_like=AS_ARRAY, omit_defaults=True, tag=True):
    pass


class BlockStored(Base):
    block_hashes: list[int]
    parent_block_hash: Optional[int]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list[Any]] = None
    group_idx: Optional[int] = None
    kv_cache_spec_kind: Optional[str] = None
    kv_cache_spec_sliding_window: Optional[int] = None


class BlockRemoved(Base):
    block_hashes: list[int]
    medium: Optional[str]
    group_idx: Optional[int] = None


class AllBlocksCleared(Base):
    pass


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    data_parallel_rank: Optional[int] = None


context = zmq.Context()
sub = context.socket(zmq.SUB)
sub.setsockopt(zmq.SUBSCRIBE, b"kv")
sub.setsockopt(zmq.RCVTIMEO, 10000)
sub.connect(sys.argv[1])
live, batch = [], None
for _ in range(3):
    topic, seq, payload = sub.recv_multipart()
    live.append(int.from_bytes(seq, "big"))
    batch = msgspec.msgpack.decode(payload, type=Batch)

dealer = context.socket(zmq.DEALER)
dealer.setsockopt(zmq.RCVTIMEO, 10000)
dealer.connect(sys.argv[2])
dealer.send_multipart([b"", (0).to_bytes(8, "big")])
replayed = []
while True:
    _, topic, seq, payload = dealer.recv_multipart()
    if seq == b"\xff" * 8 and not payload:
        break
    replayed.append(int.from_bytes(seq, "big"))

stored = batch.events[0]
json.dump(
    {
        "live": live,
        "replayed": replayed,
        "events": [type(e).__name__ for e in batch.events],
        "rank": batch.data_parallel_rank,
        "hashes": stored.block_hashes,
        "extra": stored.extra_keys,
    },
    sys.stdout,
)
context.destroy(linger=0)
