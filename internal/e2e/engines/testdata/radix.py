"""Drives SGLang's own radix cache and writes what it recorded and what it reuses.

The lines are those of managers.py. {"ids": [...], "salt": NAME} are prompts with a cache
salt. Of SGLang only the cache, its recorder and its events run; what else they import is
replaced by names that stand for nothing, and the native hash by the same digest in Python.

    radix.py FOLDER CASE... --chats N --seed N
"""

import argparse
import hashlib
import importlib.abc
import importlib.machinery
import json
import random
import sys
import types
from array import array
from pathlib import Path
from unittest.mock import MagicMock

import msgspec
import torch

CACHE = "sglang.srt.mem_cache."
REAL = {CACHE + n for n in ("radix_cache", "base_prefix_cache", "events", "utils", "evict_policy", "cache_init_params")}
REAL.add("sglang.srt.disaggregation.kv_events")


class Stub(types.ModuleType):
    """A module of which every name stands for nothing."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = MagicMock(name=name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of REAL below a folder, and stubs for all others of SGLang."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "sglang":
            return None
        if name in REAL:
            file = str(self.folder / (name.replace(".", "/") + ".py"))
            loader = importlib.machinery.SourceFileLoader(name, file)
            return importlib.machinery.ModuleSpec(name, loader, origin=file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        if module.__name__ == CACHE + "cpp_utils.native_hash":
            module.get_native_hash = chained


def chained(key, prior, page):
    """The digest of each page of a key, chained, as the native part computes it."""
    out, digest, items = [], prior, list(key)
    for start in range(0, len(items), page):
        h = hashlib.sha256(digest or b"")
        for item in items[start : start + page]:
            for token in item if isinstance(item, tuple) else (item,):
                h.update(token.to_bytes(4, "little"))
        digest = h.digest()
        out.append(digest.hex())
    return out


# name: tokens of a page, tokens of the pool, and further options
CASES = {
    "page-1": (1, 6400, {}),
    "page-4": (4, 6400, {}),
    "page-16": (16, 6400, {}),
    "page-64": (64, 6400, {}),
    "page-1-pairs": (1, 6400, dict(is_eagle=True)),
    "page-16-pairs": (16, 6400, dict(is_eagle=True)),
    "page-16-salts": (16, 6400, dict(salts=True)),
    "page-1-salts": (1, 6400, dict(salts=True)),
    "page-16-priority": (16, 6400, dict(eviction_policy="lfu")),
    "page-16-split": (16, 6400, dict(split=True)),
}


class Engine:
    def __init__(self, page, pool, options):
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

        self.match = lambda key: self.cache.match_prefix(MatchPrefixParams(key=key))
        self.put = lambda **how: self.cache.insert(InsertParams(**how))
        self.evict = lambda n: self.cache.evict(EvictParams(num_tokens=n))
        options = dict(options)
        self.key, self.pool = RadixKey, pool
        self.salts, self.split = options.pop("salts", False), options.pop("split", False)
        self.cache = RadixCache(CacheInitParams(
            disable=False, req_to_token_pool=None, token_to_kv_pool_allocator=MagicMock(), page_size=page,
            enable_kv_cache_events=True, **options))
        self.encoder = msgspec.msgpack.Encoder()
        self.page = page

    def publish(self):
        from sglang.srt.disaggregation.kv_events import KVEventBatch

        if events := self.cache.kv_events.take():
            print(json.dumps({"batch": self.encoder.encode(KVEventBatch(ts=1.0, events=events)).hex()}))

    def keyed(self, ids, salt):
        return self.key(array("q", ids), cache_salt=salt or None)

    def hit(self, ids, salt):
        """What a request would reuse: the last token is always computed."""
        return self.match(self.keyed(ids[:-1], salt)).device_prefix_len

    def insert(self, ids, salt, priority=0):
        self.put(key=self.keyed(ids, salt), value=torch.tensor(ids), priority=priority)
        self.publish()

    def serve(self, ids, answer, salt):
        lock = self.match(self.keyed(ids[:-1], salt)).last_device_node
        self.cache.inc_lock_ref(lock)
        if over := max(0, self.cache.total_size() + len(ids) + len(answer) - self.pool):
            self.evict(over)
            self.publish()
        self.insert(ids, salt)
        self.cache.dec_lock_ref(lock)
        self.insert(ids + answer, salt)
        if self.split:
            self.insert(ids, salt, 1)


def session(name, chats, seed):
    engine = Engine(*CASES[name])
    rng = random.Random(f"{name} {seed}")
    print(json.dumps({"case": name, "size": engine.page}))
    engine.publish()
    words = [[rng.randrange(50, 5000) for _ in range(rng.randrange(3, 40))] for _ in range(60)]
    systems = [[t for w in rng.choices(words, k=rng.randrange(4, 24)) for t in w] for _ in range(3)]
    open_chats = []
    for _ in range(chats):
        salt = rng.choice(["", "a", "b"]) if engine.salts else ""
        if open_chats and rng.random() < 0.7:
            chat, salt = rng.choice(open_chats)
            if rng.random() < 0.2:  # goes on from an earlier turn
                chat = chat[: rng.randrange(1, len(chat))]
        else:
            chat = list(rng.choice(systems))
        ids = chat + [t for w in rng.choices(words, k=rng.randrange(1, 6)) for t in w]
        if len(ids) > 1800:
            continue
        if rng.random() < 0.2:
            ids = ids[: max(2, len(ids) // 64 * 64)]
        answer = [rng.randrange(50, 5000) for _ in range(rng.randrange(1, 40))]
        asked = [(ids, salt)] + ([rng.choice(open_chats)] if open_chats else [])
        for prompt, s in asked:
            print(json.dumps({"ids": prompt, "salt": s, "hit": engine.hit(prompt, s)}))
        engine.serve(ids, answer, salt)
        open_chats.append((ids + answer, salt))
        open_chats = open_chats[-40:]


def main():
    args = argparse.ArgumentParser()
    args.add_argument("folder")
    args.add_argument("cases", nargs="*")
    args.add_argument("--chats", type=int, default=150)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    sys.meta_path.insert(0, Finder(args.folder))
    for name in args.cases or CASES:
        session(name, args.chats, args.seed)
        sys.stdout.flush()


main()
