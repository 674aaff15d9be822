"""Renders bodies of requests by vLLM's own code, without an engine.

    render.py FOLDER... < [[KIND, BODY]...]    writes for each folder a list of token ids, or of errors as texts

KIND is chat, responses or messages. A folder is a model's, with config.json.
"""

import asyncio
import json
import sys
import types

sys.modules.setdefault("orjson", types.ModuleType("orjson"))  # answers alone need it

from vllm.config import ModelConfig, VllmConfig
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages, DisabledThinkingEffortResolver
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.renderers.hf import HfRenderer
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.tokenizers import cached_tokenizer_from_config


class Renderer:
    def __init__(self, folder):
        model = ModelConfig(model=folder, max_model_len=2048, dtype="float32")
        self.online = OnlineRenderer(
            model, HfRenderer(VllmConfig(model_config=model), cached_tokenizer_from_config(model)), request_logger=None,
            chat_template=None, chat_template_content_format="auto", enable_auto_tools=True, tool_parser="hermes")
        self.merge = AnthropicServingMessages._should_merge_inline_system(self.online)
        self.effort = DisabledThinkingEffortResolver(self.online)

    async def render(self, kind, body):
        if kind == "responses":
            out = await self.online.render_responses(ResponsesRequest(**body))
            return out.engine_input["prompt_token_ids"] if hasattr(out, "engine_input") else str(out)
        if kind == "messages":
            r = AnthropicMessagesRequest(**body)
            chat = AnthropicServingMessages.to_chat_completion_request(
                r, merge_inline_system=self.merge, disabled_thinking_effort=await self.effort.resolve_for(r))
        else:
            chat = ChatCompletionRequest(**body)
        out = await self.online.render_chat(chat)
        return out[1][0]["prompt_token_ids"] if isinstance(out, tuple) else str(out)

    async def all(self, bodies):
        out = []
        for kind, body in bodies:
            try:
                out.append(await self.render(kind, body))
            except Exception as e:
                out.append(f"{type(e).__name__}: {e}")
        return out


sent = json.load(sys.stdin)
json.dump([asyncio.run(Renderer(folder).all(sent)) for folder in sys.argv[1:]], sys.stdout)
