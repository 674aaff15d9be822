"""What a model server makes of a chat body: the conversation it gives the
template, rendered by Python's Jinja2, and its token ids. One JSON request and
one JSON answer per line."""
import json
import os
import sys
from datetime import datetime

from tokenizers import Tokenizer

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "jinja", "testdata"))
from environment import env  # noqa: E402

env.globals["strftime_now"] = lambda f: datetime.fromtimestamp(0).strftime(f)

models, templates, tokenizers = {}, {}, {}


def model(path):
    if path not in models:
        with open(os.path.join(path, "tokenizer_config.json"), encoding="utf-8") as f:
            models[path] = json.load(f)
    return models[path]


def text_of(part):
    if isinstance(part, str):
        return part
    if part["type"] in ("refusal", "thinking"):
        return part[part["type"]]
    return part["text"]


def convert(message, as_parts):
    content = message.get("content")
    if content is None:
        content = []
    elif isinstance(content, str):
        content = [content]
    texts = [text_of(p) for p in content]
    out = {"role": message["role"]}
    if as_parts and message["role"] != "tool":
        out["content"] = [{"type": "text", "text": t} for t in texts]
    else:
        out["content"] = "\n".join(texts)
    if message["role"] == "assistant":
        if message.get("tool_calls"):
            out["tool_calls"] = json.loads(json.dumps(message["tool_calls"]))
            for call in out["tool_calls"]:
                args = call["function"].get("arguments")
                if isinstance(args, str):
                    try:
                        args = json.loads(args)
                    except json.JSONDecodeError:
                        args = {}
                if not isinstance(args, dict):
                    args = {}
                call["function"]["arguments"] = args
        reasoning = message.get("reasoning", message.get("reasoning_content"))
        if reasoning is not None:
            out["reasoning"] = out["reasoning_content"] = reasoning
    if message["role"] == "tool" and "tool_call_id" in message:
        out["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        out["name"] = message["name"]
    return out


def dump(tool):
    f = tool["function"]
    out = {k: f.get(k) for k in ("name", "description", "parameters")}
    if f.get("strict") is not None:
        out["strict"] = f["strict"]
    defer = f.get("defer_loading", tool.get("defer_loading"))
    if defer is not None:
        out["defer_loading"] = defer
    if tool.get("defer_loading") is not None:
        return {"type": "function", "function": out, "defer_loading": tool["defer_loading"]}
    return {"type": "function", "function": out}


def special(value):
    return value["content"] if isinstance(value, dict) else value


def flat(content):
    return content if isinstance(content, str) else "\n".join(p["text"] for p in content)


def developers(messages, source):
    if "'developer'" in source or '"developer"' in source or all(m["role"] != "developer" for m in messages):
        return messages
    messages = [dict(m, role="system") if m["role"] == "developer" else m for m in messages]
    system = [flat(m["content"]) for m in messages if m["role"] == "system"]
    if [i for i, m in enumerate(messages) if m["role"] == "system"] == [0]:
        return messages
    joined = "\n\n".join(s for s in system if s)
    return [{"role": "system", "content": joined}] + [m for m in messages if m["role"] != "system"]


def chat(req):
    conf = model(req["dir"])
    source = req.get("template") or conf["chat_template"]
    if source not in templates:
        templates[source] = env.from_string(source)
    body = req["body"]
    messages = developers([convert(m, req["parts"]) for m in body["messages"]], source)
    names = ("bos_token", "eos_token", "unk_token", "pad_token", "additional_special_tokens")
    args = {k: special(conf[k]) for k in names if conf.get(k)}
    args.update(body.get("chat_template_kwargs") or {})
    effort = body.get("reasoning_effort")
    if effort is not None:
        args["reasoning_effort"] = effort
        args.setdefault("enable_thinking", effort != "none")
    tools = body.get("tools")
    args.update(messages=messages, tools=None if tools is None else [dump(t) for t in tools], documents=body.get("documents"),
                add_generation_prompt=body.get("add_generation_prompt", True))
    given = (body.get("chat_template_kwargs") or {})
    for name in ("tools", "documents"):
        if given.get(name) is not None and (name == "tools" or args[name] is None):
            args[name] = given[name]
    if not body.get("continue_final_message"):
        return templates[source].render(**args)
    # As transformers 5 does.
    tag = "CONTINUE_FINAL_MESSAGE_TAG "
    last = messages[-1] = json.loads(json.dumps(messages[-1]))
    final = last["content"]
    if isinstance(final, str):
        last["content"] = final + tag
    else:
        part = [p for p in final if "text" in p][-1]
        final = part["text"]
        part["text"] = final + tag
    out = templates[source].render(**args)
    if final.strip() not in out or tag.strip() not in out:
        raise ValueError("the final message does not appear")
    at = out.rindex(tag.strip())
    out = out[:at] if out[at:at + len(tag)] == tag else out[:at].rstrip()
    return out


for line in sys.stdin:
    req = json.loads(line)
    try:
        text = chat(req) if "body" in req else req["text"]
        path = os.path.join(req["dir"], "tokenizer.json")
        if path not in tokenizers:
            tokenizers[path] = Tokenizer.from_file(path)
        ids = tokenizers[path].encode(text, add_special_tokens=req.get("special", False)).ids
        answer = {"out": text, "ids": ids}
    except Exception as e:
        answer = {"error": "%s: %s" % (type(e).__name__, e)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
