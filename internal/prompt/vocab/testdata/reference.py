"""The reference tokenizer, driven over stdin and stdout: one JSON request, one
JSON answer per line."""
import json
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models,
                        normalizers, pre_tokenizers, processors, trainers)

loaded = {}


def tokenizer(path):
    if path not in loaded:
        loaded[path] = Tokenizer.from_file(path)
    return loaded[path]


def encode(req):
    tok = tokenizer(req["file"])
    special = req.get("special", False)
    return [e.ids for e in tok.encode_batch(req["texts"], add_special_tokens=special)]


def corpus(texts):
    for t in texts:
        yield t


def train(req):
    """Trains a small vocabulary of the kind asked for and saves it."""
    kind = req["kind"]
    byte_level = kind.startswith("bytes")
    tok = Tokenizer(models.BPE(byte_fallback=not byte_level,
                               unk_token=None if byte_level else "<unk>", fuse_unk=not byte_level))
    extra = {"special_tokens": ["<unk>", "<s>", "</s>"]}
    if byte_level:
        steps = [pre_tokenizers.Split(Regex(r), "isolated") for r in req.get("patterns") or []]
        use_regex = not steps
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=kind == "bytes-prefix", use_regex=use_regex))
        tok.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tok.decoder = decoders.ByteLevel()
        extra["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
    else:
        extra["special_tokens"] += ["<0x%02X>" % b for b in range(256)]
        tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
        if kind == "spm-prepend":
            tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        elif kind == "spm-replace":
            tok.normalizer = normalizers.Replace(" ", "\u2581")
            tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        else:
            _, scheme, split = kind.split("-")
            tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split == "split")
    if req.get("form"):
        forms = {"NFC": normalizers.NFC, "NFKC": normalizers.NFKC, "NFD": normalizers.NFD}
        tok.normalizer = forms[req["form"]]()
    tok.train_from_iterator(corpus(req["texts"]), trainers.BpeTrainer(vocab_size=req["size"], show_progress=False, **extra))
    for a in req.get("added") or []:
        tok.add_tokens([AddedToken(a["content"], lstrip=a.get("lstrip", False), rstrip=a.get("rstrip", False),
                                   single_word=a.get("single_word", False), normalized=a.get("normalized", False),
                                   special=a.get("special", False))])
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tok.token_to_id("<s>"))])
    data = json.loads(tok.to_str())
    # Byte tokens had to be special to get into the vocabulary; in real files they are not.
    data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
    with open(req["file"], "w", encoding="utf-8") as f:
        json.dump(data, f)
    return tok.get_vocab_size()


handlers = {"encode": encode, "train": train}
for line in sys.stdin:
    req = json.loads(line)
    json.dump(handlers[req["cmd"]](req), sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()
