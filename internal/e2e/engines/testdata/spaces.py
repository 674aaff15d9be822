"""What the tokenizers of an engine make of texts, by the classes that it loads.

    spaces.py FOLDER                makes a small SentencePiece-style tokenizer.json there
    spaces.py FOLDER... < texts     for each folder a list of lists of ids

Texts are a JSON list, and so is what is written. Nothing is put around them.
"""

import json
import random
import sys

from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers
from transformers import AutoTokenizer

WORDS = "hello world the cat is a naïve [INST] [/INST] <<SYS>> 文 def (x): return user  system café".split(" ")


def train(folder):
    """A tokenizer.json as those of Llama 2 are written."""
    rng = random.Random(1)
    tok = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tok.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    texts = [" ".join(rng.choice(WORDS) for _ in range(30)) for _ in range(400)]
    special = ["<unk>", "<s>", "</s>"]
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=600, show_progress=False, special_tokens=special + ["<0x%02X>" % b for b in range(256)]))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    data = json.loads(tok.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if a["content"] in special]
    with open(folder + "/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(data, f)


if len(sys.argv) == 2:
    train(sys.argv[1])
else:
    texts = json.load(sys.stdin)
    loaded = [AutoTokenizer.from_pretrained(folder) for folder in sys.argv[1:]]
    json.dump([[tok.encode(t, add_special_tokens=False) for t in texts] for tok in loaded], sys.stdout)
