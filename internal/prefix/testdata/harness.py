"""An engine fleet made of parts that Grapevine does not share code with.

Prompts are rendered by jinja2, tokenized by the Rust `tokenizers`, cached by a
block pool with vLLM's rules, and announced on libzmq sockets (PUB and a
replay ROUTER). The process reads one JSON command per line on standard input and
answers with one JSON line, so that a test can compare, request by request,
what a reader of the event streams predicts with what the pools hold.

Commands (op):
  next                      make the next chat request; answers body
  run {engine, noncanonical}  run the last request there; answers truth (cached
                            tokens it would have had on every engine, at that moment) and prompt_tokens
  fault {engine, kind, ...} drop | holes | wrap | restart | noreplay
  seq                       last published sequence number of every engine
"""

import collections
import hashlib
import json
import os
import random
import struct
import sys
import threading

import jinja2
import msgpack
import zmq
from tokenizers import Tokenizer

BLOCK = 16
END = b"\xff" * 8


class Pool:
    """A paged prefix cache: reference counts, hash chains, LRU free queue."""

    def __init__(self, blocks):
        self.free = collections.OrderedDict((i, None) for i in range(blocks))
        self.refs = [0] * blocks
        self.hash_of = [None] * blocks
        self.cached = collections.defaultdict(dict)  # hash -> {block id}
        self.events = []

    def lookup(self, hashes):
        found = []
        for h in hashes:
            ids = self.cached.get(h)
            if not ids:
                break
            found.append(next(iter(ids)))
        return found

    def touch(self, ids):
        for i in ids:
            if self.refs[i] == 0:
                del self.free[i]
            self.refs[i] += 1

    def take(self):
        i, _ = self.free.popitem(last=False)
        h = self.hash_of[i]
        if h is not None:
            del self.cached[h][i]
            if not self.cached[h]:
                del self.cached[h]
            self.hash_of[i] = None
            self.events.append(removed(h))
        self.refs[i] = 1
        return i

    def name(self, i, h):
        self.hash_of[i] = h
        self.cached[h][i] = True

    def release(self, ids):
        for i in reversed(ids):
            self.refs[i] -= 1
            if self.refs[i] == 0:
                self.free[i] = None


def wire_hash(h):
    return int.from_bytes(h[-8:], "big")


def removed(h):
    return {"type": "BlockRemoved", "block_hashes": [wire_hash(h)], "medium": "GPU", "group_idx": 0}


def stored(parent, hashes, tokens):
    return {
        "type": "BlockStored",
        "block_hashes": [wire_hash(h) for h in hashes],
        "parent_block_hash": wire_hash(parent) if parent else None,
        "token_ids": tokens,
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(hashes),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def as_array(e):
    """The positional form of an event (before vLLM 0.24)."""
    if e["type"] == "BlockRemoved":
        return ["BlockRemoved", e["block_hashes"], e["medium"]]
    keys = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
    return ["BlockStored"] + [e[k] for k in keys]


class Engine:
    """One engine: a pool, its event stream, and faults on demand."""

    def __init__(self, ctx, index, blocks, ring, arrays):
        self.blocks, self.arrays = blocks, arrays
        self.lock = threading.Lock()
        self.pub = ctx.socket(zmq.PUB)
        self.pub.setsockopt(zmq.SNDHWM, 100000)
        self.port = self.pub.bind_to_random_port("tcp://127.0.0.1")
        self.router = ctx.socket(zmq.ROUTER)
        self.replay_port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.ring = collections.deque(maxlen=ring)
        self.rng = random.Random(index)
        self.drop = self.holes = 0.0
        self.replay = True
        self.seed = b"root"
        self.seq = -1
        self.pool = Pool(blocks)
        threading.Thread(target=self.serve_replay, daemon=True).start()

    def serve_replay(self):
        while True:
            frames = self.router.recv_multipart()
            if len(frames) != 3 or not self.replay:
                continue
            start = struct.unpack(">Q", frames[2])[0]
            with self.lock:
                batches, self_holes = list(self.ring), self.holes
                self.holes = 0.0  # a hole is there once: the next round fills it
            for seq, payload in batches:
                if seq < start or self.rng.random() < self_holes:
                    continue
                self.router.send_multipart([frames[0], b"", b"", struct.pack(">Q", seq), payload])
            self.router.send_multipart([frames[0], b"", b"", END, b""])

    def publish(self, t):
        events, self.pool.events = self.pool.events, []
        if not events:
            return
        if self.arrays:
            events = [as_array(e) for e in events]
        payload = msgpack.packb([float(t), events, 0])
        with self.lock:
            self.seq += 1
            self.ring.append((self.seq, payload))
            dropped = self.rng.random() < self.drop
        if not dropped:
            self.pub.send_multipart([b"", struct.pack(">Q", self.seq), payload])

    def restart(self, ahead):
        """A new process: cold cache, and a sequence number already past the old."""
        with self.lock:
            self.ring.clear()
            self.pool = Pool(self.blocks)
            self.seed = os.urandom(8)
            if ahead:
                start, self.seq = self.seq + 1, self.seq + ahead
                for s in range(start, self.seq + 1):
                    self.ring.append((s, msgpack.packb([1.0, [], 0])))
            else:
                self.seq = -1

    def hashes(self, ids):
        out, parent = [], self.seed
        for i in range(0, len(ids) - len(ids) % BLOCK, BLOCK):
            parent = hashlib.sha256(parent + struct.pack(f"<{BLOCK}I", *ids[i : i + BLOCK])).digest()
            out.append(parent)
        return out

    def cached_tokens(self, ids):
        limit = (len(ids) - 1) // BLOCK
        return BLOCK * len(self.pool.lookup(self.hashes(ids)[:limit]))

    def run(self, prompt, answer, t):
        """Prefill in one step, then the answer; blocks are named when full."""
        pool, hashes = self.pool, self.hashes(prompt + answer)
        held = pool.lookup(hashes[: (len(prompt) - 1) // BLOCK])
        pool.touch(held)
        hit = len(held)
        ids = prompt + answer
        need = -(-len(ids) // BLOCK) - hit
        fresh = [pool.take() for _ in range(need)]
        whole = len(prompt) // BLOCK
        self.announce(ids, hashes[:whole], held + fresh, hit)
        self.publish(t)
        for n in range(whole, len(hashes)):  # decode: one block at a time
            self.announce(ids, hashes[: n + 1], held + fresh, n)
            self.publish(t)
        pool.release(held + fresh)

    def announce(self, ids, hashes, blocks, first):
        """Names the blocks from first on, as far as there are hashes."""
        new = hashes[first:]
        if not new:
            return
        parent = hashes[first - 1] if first else None
        for n, h in enumerate(new):
            self.pool.name(blocks[first + n], h)
        tokens = ids[first * BLOCK : (first + len(new)) * BLOCK]
        self.pool.events.append(stored(parent, new, tokens))


WORDS = """the of and model cache prefix block token request latency engine memory window answer question reason
because therefore however context batch layer attention weight tensor gradient router cluster replica gossip stream
migration internationalization counterintuitive disproportionately straightforwardly""".split()
CJK = "今天天气很好我们一起去公园散步然后回家做饭机器学习模型推理缓存前缀命中率调度请求延迟吞吐量数据库分布式系统"
EMOJI = ["😀", "🚀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "🤖"]
CODE = [
    "def f(x, y=0):\n    if x > y:\n        return x - y\n    return {\"k\": [1, 2.5, None]}\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n",
    "SELECT id, count(*) FROM requests WHERE ttft_ms > 250 GROUP BY id;\n",
    "func (s *Server) Close() error {\n\treturn errors.Join(s.a.Close(), s.b.Close())\n}\n",
]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Current weather of a city.",
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "search", "description": "Search \"documents\" <fast> & well.",
     "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}},
]


def passage(rng, n):
    out = []
    while n > 0:
        kind = rng.random()
        if kind < 0.70:
            s = " ".join(rng.choice(WORDS) for _ in range(12)).capitalize() + rng.choice([". ", ".\n", "!  ", " - ", "\n\n"])
        elif kind < 0.82:
            s = "".join(rng.choice(CJK) for _ in range(20)) + rng.choice("。，！")
        elif kind < 0.92:
            s = rng.choice(CODE)
        elif kind < 0.97:
            s = rng.choice(EMOJI) + " " + str(rng.randrange(10**9)) + " "
        else:
            s = "e\u0301 \u00a0\t" + "  " * rng.randrange(4) + "x" * rng.randrange(9)
        out.append(s)
        n -= len(s)
    return "".join(out)


class Chats:
    """Multi-turn chats with shared system prompts, tools, and edits inside words."""

    def __init__(self, rng):
        self.rng = rng
        self.systems = [passage(rng, rng.randrange(500, 6000)) for _ in range(12)]
        self.open = []

    def next(self):
        rng = self.rng
        if len(self.open) < 60 or rng.random() < 0.12:
            chat = {"messages": [], "tools": rng.choice([None, None, None, TOOLS])}
            if rng.random() < 0.9:
                chat["messages"].append({"role": "system", "content": rng.choice(self.systems)})
            self.open.append(chat)
            if len(self.open) > 90:
                self.open.pop(0)
        else:
            chat = rng.choice(self.open)
        messages = chat["messages"]
        users = [m for m in messages if m["role"] == "user"]
        if users and rng.random() < 0.08:  # edit the middle of a word of an earlier turn, drop what follows
            m = rng.choice(users)
            del messages[messages.index(m) + 1 :]
            cut = rng.randrange(1, max(2, len(m["content"])))
            m["content"] = m["content"][:cut] + rng.choice(["s", "ing", "不", "7", " x"]) + passage(rng, 60)
        elif not messages or messages[-1]["role"] != "user":
            messages.append({"role": "user", "content": passage(rng, rng.randrange(20, 1500))})
        self.last = chat
        body = {"model": "m", "messages": [dict(m) for m in messages]}
        if chat["tools"]:
            body["tools"] = chat["tools"]
        return body

    def answered(self, text):
        self.last["messages"].append({"role": "assistant", "content": text})
        if sum(len(m["content"]) for m in self.last["messages"]) > 40000:
            self.open.remove(self.last)


class Harness:
    def __init__(self, o):
        global BLOCK
        BLOCK = o["block"] or BLOCK
        self.rng = random.Random(o["seed"])
        self.tok = Tokenizer.from_file(os.path.join(o["model"], "tokenizer.json"))
        with open(os.path.join(o["model"], "tokenizer_config.json"), encoding="utf-8") as f:
            conf = json.load(f)
        env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        env.filters["tojson"] = lambda v, indent=None: json.dumps(v, ensure_ascii=False, indent=indent)
        env.globals["raise_exception"] = self.raise_exception
        env.globals["strftime_now"] = lambda f: "26 Jul 2024"
        self.template = env.from_string(conf["chat_template"])
        bos = conf.get("bos_token") or ""
        self.vars = {"bos_token": bos if isinstance(bos, str) else bos["content"], "eos_token": ""}
        ctx = zmq.Context()
        self.engines = [Engine(ctx, i, o["blocks"], o["ring"], arrays=i % 2 == 1) for i in range(o["engines"])]
        self.chats = Chats(self.rng)
        self.t = 0.0

    @staticmethod
    def raise_exception(message):
        raise ValueError(message)

    def ports(self):
        return [[e.port, e.replay_port] for e in self.engines]

    def next(self, _):
        self.body = self.chats.next()
        text = self.template.render(messages=self.body["messages"], tools=self.body.get("tools"),
                                    add_generation_prompt=True, **self.vars)
        self.prompt = self.tok.encode(text, add_special_tokens=False).ids
        if self.tok.normalizer is not None:  # what the tokens stand for is the normalised text
            text = self.tok.normalizer.normalize_str(text)
        return {"body": self.body, "text": text}

    def answer(self, noncanonical):
        text = passage(self.rng, self.rng.randrange(40, 900)).strip() + "."
        ids = self.tok.encode(text, add_special_tokens=False).ids
        if noncanonical:  # split some tokens into valid pieces: same text, other tokens
            out = []
            for i in ids:
                s = self.tok.decode([i])
                cut = len(s) // 2
                if self.rng.random() < 0.1 and cut and "\ufffd" not in s:
                    out += self.tok.encode(s[:cut], add_special_tokens=False).ids
                    out += self.tok.encode(s[cut:], add_special_tokens=False).ids
                else:
                    out.append(i)
            ids = out
        return text, ids

    def run(self, c):
        truth = [e.cached_tokens(self.prompt) for e in self.engines]
        text, ids = self.answer(c.get("noncanonical", False))
        self.t += 1
        self.engines[c["engine"]].run(self.prompt, ids, self.t)
        self.chats.answered(text)
        return {"truth": truth, "prompt_tokens": len(self.prompt), "seq": [e.seq for e in self.engines]}

    def fault(self, c):
        e = self.engines[c["engine"]]
        kind = c["kind"]
        if kind == "drop":
            e.drop = c["share"]
        elif kind == "holes":
            e.holes = c["share"]
        elif kind == "wrap":
            with e.lock:
                for _ in range(min(len(e.ring), c["count"])):
                    e.ring.popleft()
        elif kind == "restart":
            e.restart(c.get("ahead", 0))
        elif kind == "noreplay":
            e.replay = False
        else:
            return {"error": "unknown fault " + kind}
        return {}

    def seq(self, _):
        return {"seq": [e.seq for e in self.engines]}


def main():
    h = Harness(json.loads(sys.stdin.readline()))
    ops = {"next": h.next, "run": h.run, "fault": h.fault, "seq": h.seq}
    print(json.dumps({"ports": h.ports()}), flush=True)
    for line in sys.stdin:
        c = json.loads(line)
        print(json.dumps(ops[c["op"]](c)), flush=True)


if __name__ == "__main__":
    main()
