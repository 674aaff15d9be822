"""Makes each call with the openai and anthropic packages at two servers, and compares the results.

Usage: pair.py MODEL URL URL. It prints one line per kind of call, and exits with 1 if a result differs.
Ids and times are left out.
"""

import sys

import anthropic
import openai

model, *urls = sys.argv[1:]
clients = [openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=20) for url in urls]
anthropics = {c: anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=20) for c, url in zip(clients, urls)}
VOLATILE = {"id", "created", "created_at", "completed_at", "system_fingerprint", "item_id", "response_id"}


def stable(value):
    """Returns value without ids and times."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, dict):
        return {k: stable(v) for k, v in value.items() if k not in VOLATILE}
    if isinstance(value, (list, tuple)):
        return [stable(v) for v in value]
    return value


def merged(stream):
    """Joins the texts of a stream's choices. Where an engine divides them depends on its timing."""
    choices, rest = {}, []
    for event in map(stable, stream):
        for c in event.pop("choices"):
            delta = c.pop("delta", None) or {"content": c.pop("text")}
            one = choices.setdefault(c["index"], {"content": "", "role": None})
            one["content"] += delta.pop("content") or ""
            one["role"] = delta.pop("role", None) or one["role"]
            one.update({k: v for k, v in {**delta, **c}.items() if v is not None})
        if event not in rest:
            rest.append(event)
    return choices, rest


def long(name, words=120):
    return f"{name}: " + "a prompt that two engines share. " * (words // 6)


def chat(name, content=None, **more):
    def call(client):
        messages = more.get("messages") or [{"role": "user", "content": content or long(name)}]
        fields = {"model": model, "max_tokens": 12, **more, "messages": messages}
        answer = client.chat.completions.create(**fields)
        return merged(answer) if fields.get("stream") else answer

    return name, call


def complete(name, prompt=None, **more):
    def call(client):
        answer = client.completions.create(**{"model": model, "prompt": prompt or long(name), "max_tokens": 12, **more})
        return merged(answer) if more.get("stream") else answer

    return name, call


def respond(name, **more):
    def call(client):
        answer = client.responses.create(**{"model": model, "input": long(name), "max_output_tokens": 12, **more})
        return list(answer) if more.get("stream") else answer

    return name, call


def message(name, content=None, stream=False, **more):
    def call(client):
        fields = {"model": model, "max_tokens": 12, "messages": [{"role": "user", "content": content or long(name)}], **more}
        if not stream:
            return anthropics[client].messages.create(**fields)
        with anthropics[client].messages.stream(**fields) as events:
            text = "".join(events.text_stream)
            return text, events.get_final_message()

    return name, call


def cancelled(name):
    """Leaves a stream after three events. The next call, with the same prompt, is complete."""

    def call(client):
        messages = [{"role": "user", "content": long(name)}]
        with client.chat.completions.create(model=model, messages=messages, max_tokens=200, stream=True) as stream:
            for _ in range(3):
                next(stream)
        return client.chat.completions.create(model=model, messages=messages, max_tokens=12).choices

    return name, call


def turns(name):
    """Continues a stored response."""

    def call(client):
        first = client.responses.create(model=model, input=long(name), max_output_tokens=12)
        second = client.responses.create(model=model, input="and then?", max_output_tokens=12, previous_response_id=first.id)
        return first.output_text, second.output_text

    return name, call


tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}
usage = {"include_usage": True}
cases = [
    chat("chat"), chat("chat, short", "hello"), chat("chat, 4,000 tokens", long("chat, 4,000 tokens", 4000)), chat("chat, streamed", stream=True),
    chat("chat, streamed with usage", stream=True, stream_options=usage), chat("chat, one token", max_tokens=1), chat("chat, n", n=3),
    chat("chat, n streamed", n=2, stream=True), chat("chat, tools", tools=[tool], tool_choice="auto"), chat("chat, tools streamed", tools=[tool], stream=True),
    chat("chat, max_completion_tokens", max_completion_tokens=9), chat("chat, min_tokens", extra_body={"min_tokens": 12}), chat("chat, stop", stop=["e"]),
    chat("chat, turns", messages=[{"role": "system", "content": long("chat, turns")}, {"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]),
    chat("chat, parts", messages=[{"role": "user", "content": [{"type": "text", "text": long("chat, parts")}, {"type": "text", "text": " and more"}]}]),
    cancelled("chat, cancelled"),
    complete("completions"), complete("completions, streamed", stream=True), complete("completions, streamed with usage", stream=True, stream_options=usage),
    complete("completions, n", n=2), complete("completions, list", [long("list 1"), long("list 2")]), complete("completions, tokens", list(range(1000, 1200))),
    complete("completions, echo", echo=True), complete("completions, 4,000 tokens", long("completions, 4,000 tokens", 4000), stream=True),
    respond("responses"), respond("responses, streamed", stream=True), respond("responses, instructions", instructions="be brief"), turns("responses, turns"),
    message("messages"), message("messages, streamed", stream=True), message("messages, 4,000 tokens", long("messages, 4,000 tokens", 4000)),
    message("messages, system", system="be brief"), message("messages, tools", tools=[{"name": "look", "input_schema": tool["function"]["parameters"]}]),
    message("messages, parts", [{"type": "text", "text": long("messages, parts")}, {"type": "text", "text": "and more"}]), message("messages, short", "hello"),
    message("messages, no tokens: 400", max_tokens=0), message("messages, unknown model, streamed: 404", model="other", stream=True),
    message("messages, unknown model: 404", model="other"),
    chat("no tokens: 400", max_tokens=0), chat("no tokens, streamed: 400", max_tokens=0, stream=True), chat("too long: 400", long("too long", 1_200_000)),
    complete("n: 400", n=0), chat("unknown model: 404", model="other"), complete("unknown model, streamed: 404", model="other", stream=True),
    respond("unknown response: 404", previous_response_id="resp_none"),
]

failed = 0
for name, call in cases:
    results = []
    for client in clients:
        try:
            results.append(stable(call(client)))
        except (openai.APIStatusError, anthropic.APIStatusError) as e:
            results.append([type(e).__name__, e.status_code])
    want = int(name[-3:]) if name[-5:-3] == ": " else 200
    got = [r[1] if isinstance(r, list) and len(r) == 2 and isinstance(r[1], int) else 200 for r in results]
    if results[0] != results[1] or got != [want, want]:
        failed += 1
        print(f"DIFFERENT {name}, want {want}:\n  {results[0]}\n  {results[1]}")
    else:
        print(f"equal {name}")
print(f"{len(cases)} kinds of call, {failed} different")
sys.exit(failed > 0)
