"""Chat with the engines behind Grapevine: python3 chat.py [BASE_URL [MODEL]]"""

import sys
import uuid

import openai
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
model = sys.argv[2] if len(sys.argv) > 2 else "Qwen/Qwen3-8B"

session = str(uuid.uuid4())  # one per conversation
chat = ChatOpenAI(
    base_url=base_url,
    model=model,
    api_key="none",  # or the engines' key
    max_tokens=32,
    max_retries=2,  # of 429 and 503, after the time in Retry-After
    timeout=600,
    stream_usage=True,  # the last part of a stream has the usage
    default_headers={"x-session-id": session, "x-llm-d-inference-objective": "interactive"},
)

history = [SystemMessage("You answer in one sentence. " + "Here is a long manual. " * 60)]
for question in ("What is an endpoint picker?", "Why does it look at prefixes?"):
    history.append(HumanMessage(question))
    answer = chat.invoke(history, extra_headers={"x-request-id": f"{session}-{len(history)}"})
    history.append(answer)
    usage = answer.usage_metadata
    print(f"answer: {len(answer.content) > 0}, input tokens {usage['input_tokens']}, "
          f"cached {usage['input_token_details'].get('cache_read', 0)}")

history.append(HumanMessage("Say it again, in parts."))
whole = None
parts = 0
for part in chat.stream(history):
    parts += bool(part.content)
    whole = part if whole is None else whole + part
print(f"stream: {parts > 1}, input tokens {whole.usage_metadata['input_tokens']}, "
      f"cached {whole.usage_metadata['input_token_details'].get('cache_read', 0)}")

try:
    chat.bind(model="no-such-model").invoke("hello")
except openai.NotFoundError as e:
    print("error:", e.status_code, e.body["message"] if isinstance(e.body, dict) else e.body)

print("request:", f"{session}-2")
