"""Drives vLLM's own block manager and writes what it published and what it reuses.

Each line of the output is one JSON object: {"case": NAME, "size": TOKENS} begins a
session, {"batch": HEX} is an event batch as vLLM encodes it, {"ids": [...], "hit": N}
says that N tokens of this prompt would be reused at this moment, {"report": [...]} that
the next batch answers a request for a full report of this prompt.

    managers.py CASE... --chats N --seed N
"""

import argparse
import inspect
import json
import random
import sys

import msgspec
import torch
from vllm.distributed.kv_events import BlockStored, KVEventBatch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256_cbor
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

ATTENTION = dict(num_kv_heads=1, head_size=8, dtype=torch.float32)


def accepted(function, **arguments):
    """The arguments that this version of a function knows."""
    known = inspect.signature(function).parameters
    return {k: v for k, v in arguments.items() if k in known}


def full(size):
    return FullAttentionSpec(block_size=size, **ATTENTION)


def window(size, width):
    return SlidingWindowSpec(block_size=size, sliding_window=width, **ATTENTION)


def chunked(size, chunk):
    return ChunkedLocalAttentionSpec(block_size=size, attention_chunk_size=chunk, **ATTENTION)


def state(size):
    return MambaSpec(**accepted(
        MambaSpec.__init__, block_size=size, shapes=((8,),), dtypes=(torch.float32,), mamba_cache_mode="align"))


# name: groups, blocks of the pool, and further options of the manager
CASES = {
    "full-16": ([full(16)], 400, {}),
    "full-32": ([full(32)], 200, {}),
    "full-64": ([full(64)], 100, {}),
    "full-16-drop": ([full(16)], 400, dict(use_eagle=True)),
    "full-64-drop": ([full(64)], 100, dict(use_eagle=True)),
    "full-16-ahead": ([full(16)], 400, dict(num_hash_lookahead_tokens=1)),
    "full-16-ahead-3": ([full(16)], 400, dict(num_hash_lookahead_tokens=3)),
    "full-16-reports": ([full(16)], 400, dict(reports=True)),
    "full-window": ([full(16), window(16, 128)], 700, {}),
    "full-windows": ([window(16, 64), full(16)] + [window(16, 64)] * 4, 1600, {}),
    "full-two-windows": ([full(16), window(16, 64), window(16, 256)], 900, {}),
    "full-window-sparse": ([full(16), window(16, 64)], 700, dict(retention=0)),
    "full-window-128": ([full(16), window(16, 64)], 700, dict(retention=128)),
    "full-window-drop": ([full(16), window(16, 64)], 700, dict(use_eagle=True)),
    "full-window-reports": ([full(16), window(16, 64)], 700, dict(reports=True)),
    "full-large-window": ([full(16), window(64, 200)], 500, {}),
    "full-small-window": ([full(64), window(16, 40)], 300, {}),
    "full-small-window-sparse": ([full(64), window(16, 40)], 300, dict(retention=0)),
    "full-small-window-ahead": ([full(64), window(16, 40)], 300, dict(num_hash_lookahead_tokens=1)),
    "full-small-window-drop": ([full(64), window(16, 40)], 300, dict(use_eagle=True)),
    "full-small-window-reports": ([full(64), window(16, 40)], 300, dict(reports=True)),
    "full-small-windows": ([window(16, 256), full(32)] + [window(16, 256)] * 4, 1300, {}),
    "full-small-windows-sparse": ([window(16, 256), full(32)] + [window(16, 256)] * 4, 1300, dict(retention=0)),
    "full-small-windows-128": ([full(32), window(16, 128)], 500, dict(retention=128)),
    "full-small-window-state": ([full(64), window(16, 64), state(64)], 300, dict(retention=0)),
    "full-smaller-window": ([full(256), window(64, 128)], 120, {}),
    "full-smaller-window-sparse": ([full(256), window(64, 128)], 120, dict(retention=0)),
    "full-uneven-window": ([full(64), window(16, 100)], 300, {}),
    "full-small-full": ([full(64), full(16)], 300, {}),
    "full-chunked": ([full(16), chunked(16, 256)], 700, {}),
    "full-state": ([full(128), state(128)], 120, {}),
    "full-states": ([full(64)] + [state(64)] * 3, 400, {}),
    "full-state-sparse": ([full(128), state(128)], 120, dict(retention=0)),
    "full-state-window": ([full(64), state(64), window(64, 256)], 300, {}),
    "window-only": ([window(16, 128)], 300, {}),
}


class Engine:
    def __init__(self, groups, blocks, options):
        options = dict(options)
        if len(groups) > 1 and not hasattr(BlockStored, "group_idx"):
            raise LookupError("its events do not tell groups apart")
        if isinstance(groups[0], ChunkedLocalAttentionSpec | SlidingWindowSpec) and not hasattr(BlockStored, "group_idx"):
            raise LookupError("its events do not tell kinds of groups")
        self.reports = options.pop("reports", False)
        self.drop = options.get("use_eagle", False)
        ahead = options.get("num_hash_lookahead_tokens", 0)
        sizes = [g.block_size for g in groups]
        self.unit, self.align = min(sizes), max(sizes)  # each divides the next
        config = KVCacheConfig(**accepted(
            KVCacheConfig.__init__, num_blocks=blocks, kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec([f"layer{i}"], g) for i, g in enumerate(groups)],
            prefix_cache_retention_interval=options.pop("retention", None)))
        wanted = dict(
            options, kv_cache_config=config, max_model_len=8192, enable_caching=True, enable_kv_cache_events=True,
            scheduler_block_size=self.align, hash_block_size=self.unit)
        known = accepted(KVCacheManager.__init__, **wanted)
        if missing := set(options) - set(known):
            raise LookupError(f"this version has no {missing}")
        self.manager = KVCacheManager(**known)
        hasher = kv_cache_utils.get_request_block_hasher
        self.hasher = hasher(self.unit, sha256_cbor, **accepted(hasher, num_hash_lookahead_tokens=ahead))
        self.state = any(isinstance(g, MambaSpec) for g in groups)
        self.size = max((g.block_size for g in groups if isinstance(g, FullAttentionSpec)), default=self.align)
        self.n = 0
        self.encoder = msgspec.msgpack.Encoder()

    def request(self, ids, report=False):
        self.n += 1
        r = Request(**accepted(
            Request.__init__, request_id=str(self.n), prompt_token_ids=list(ids), pooling_params=None, eos_token_id=0,
            sampling_params=SamplingParams(max_tokens=64), block_hasher=self.hasher))
        if report:
            r.kv_cache_report_mode = "full"
        return r

    def publish(self):
        events = self.manager.take_events()
        if events:
            print(json.dumps({"batch": self.encoder.encode(KVEventBatch(ts=1.0, events=events)).hex()}))

    def hit(self, ids):
        return self.manager.get_computed_blocks(self.request(ids))[1]

    def chunk(self, start, n, junction):
        """End of the step that computes a prompt from start on."""
        end = min(start + 512, n)
        if self.state:  # steps end where states can be kept
            last = n // self.align * self.align
            if self.drop:
                last = max(0, last - self.align)
            stops = [p for p in (last, junction) if start < p < end]
            end = min(stops) if stops else end
            if end < n and end % self.align and end // self.align * self.align > start:
                end = end // self.align * self.align
        return end

    def serve(self, ids, answer, report=False):
        r = self.request(ids, report)
        found = self.manager.get_computed_blocks(r)
        blocks, hit = found[0], found[1]
        if report and hit:
            print(json.dumps({"report": ids}))
        junction = found[2] if len(found) > 2 else 0
        if hasattr(r, "shared_prefix_boundary"):
            r.shared_prefix_boundary = junction
        done, first = hit, True
        while done < r.num_tokens:
            end = self.chunk(done, r.num_tokens, junction) if done < len(ids) else r.num_tokens
            if hasattr(self.manager, "new_step_starts"):
                self.manager.new_step_starts()
            more = dict(num_new_computed_tokens=hit, new_computed_blocks=blocks) if first else {}
            if self.manager.allocate_slots(r, end - done, **more) is None:
                break  # the pool is full of running requests: never here
            done, first = end, False
            r.num_computed_tokens = done
            self.publish()
            if done == r.num_tokens and done < len(ids) + len(answer):
                r.append_output_token_ids(answer[done - len(ids)])
        self.manager.free(r)
        self.publish()


def session(name, chats, seed):
    try:
        engine = Engine(*CASES[name])
    except Exception as e:  # this version has none of it
        print(json.dumps({"case": name, "absent": f"{type(e).__name__}: {e}".splitlines()[0][:90]}))
        return
    rng = random.Random(f"{name} {seed}")
    print(json.dumps({"case": name, "size": engine.size, "drop": engine.drop}))
    words = [[rng.randrange(50, 5000) for _ in range(rng.randrange(3, 40))] for _ in range(60)]
    systems = [[t for w in rng.choices(words, k=rng.randrange(4, 24)) for t in w] for _ in range(3)]
    open_chats = []
    for _ in range(chats):
        if open_chats and rng.random() < 0.7:
            chat = rng.choice(open_chats)
            if rng.random() < 0.2:  # goes on from an earlier turn
                chat = chat[: rng.randrange(1, len(chat))]
        else:
            chat = list(rng.choice(systems))
        ids = chat + [t for w in rng.choices(words, k=rng.randrange(1, 6)) for t in w]
        if len(ids) > 1800:
            continue
        if rng.random() < 0.2:
            ids = ids[: max(1, len(ids) // engine.size * engine.size)]
        answer = [rng.randrange(50, 5000) for _ in range(rng.randrange(1, 40))]
        print(json.dumps({"ids": ids, "hit": engine.hit(ids)}))
        if open_chats:
            other = rng.choice(open_chats)
            print(json.dumps({"ids": other, "hit": engine.hit(other)}))
        engine.serve(ids, answer, engine.reports and rng.random() < 0.3)
        open_chats.append(ids + answer)
        open_chats = open_chats[-40:]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("cases", nargs="*")
    args.add_argument("--chats", type=int, default=150)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    if hasattr(kv_cache_utils, "init_none_hash"):
        kv_cache_utils.init_none_hash(sha256_cbor)
    for name in args.cases or CASES:
        session(name, args.chats, args.seed)
        sys.stdout.flush()


main()
