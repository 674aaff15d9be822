"""Encodes and renders with the reference implementations.

stdin: {"dir", "texts": [...], "chats": [...]}; stdout: {"ids", "decoded", "prompts"}.
"""
import json
import sys

import jinja2
from tokenizers import Tokenizer

job = json.load(sys.stdin)
tok = Tokenizer.from_file(job["dir"] + "/tokenizer.json")
config = json.load(open(job["dir"] + "/tokenizer_config.json"))
template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(config["chat_template"])
ids = [tok.encode(t, add_special_tokens=True).ids for t in job["texts"]]
json.dump(
    {
        "ids": ids,
        "decoded": [tok.decode(i, skip_special_tokens=False) for i in ids],
        "prompts": [
            template.render(messages=c["messages"], add_generation_prompt=c.get("add_generation_prompt", True))
            for c in job["chats"]
        ],
    },
    sys.stdout,
)
