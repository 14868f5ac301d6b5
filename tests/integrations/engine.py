"""An inference server on loopback: scripted answers, with the ids and log-probs of a tiny model in the form of vLLM."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

import torch
from trl.chat_template_utils import get_training_chat_template

from tests.integrations import loopback
from tests.train.runs import CALL


def scripted(messages: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """Return the text of the next turn and its call: a tool that is not there, then the right one, then the sum."""
    a, b = map(int, re.findall(r"(\d)\+(\d)", messages[0]["content"])[0])
    said = " ".join(str(message.get("content")) for message in messages[1:])
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if str(a + b) in results or "already known" in said:
        return f"<think>\n\n</think>\n\n{a + b}<|im_end|>", None
    name = "add" if "not found" in said else "plus"
    return CALL % (name, a, b), {"name": name, "arguments": json.dumps({"a": a, "b": b})}


@torch.no_grad()
def logps_of(model: Any, prompt: list[int], answer: list[int]) -> list[float]:
    logits = model(input_ids=torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()


def completion(world: Any, body: dict[str, Any], *, keeps: bool = True) -> dict[str, Any]:
    """Answer in the form of vLLM with `return_token_ids`; the template `keeps` earlier turns or rewrites them."""
    model, tokenizer = world
    messages = [_parsed(message) for message in body["messages"]]
    prompt = tokenizer.apply_chat_template(
        messages,
        tools=body.get("tools"),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
        chat_template=get_training_chat_template(tokenizer) if keeps else None,
    )
    text, call = scripted(body["messages"])
    answer = tokenizer(text)["input_ids"]
    calls = [{"id": f"chatcmpl-tool-{len(messages)}", "type": "function", "function": call}] if call else []
    content = None if call else text.partition("</think>\n\n")[2].removesuffix("<|im_end|>")
    logps = [{"token": f"token_id:{one}", "logprob": min(value, 0.0)}
             for one, value in zip(answer, logps_of(model, prompt, answer), strict=True)]  # fmt: skip
    choice = {
        "index": 0,
        "finish_reason": "tool_calls" if call else "stop",
        "message": {"role": "assistant", "content": content, "tool_calls": calls},
        "token_ids": answer,
        "logprobs": {"content": logps},
    }
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(answer), "total_tokens": len(prompt) + len(answer)}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"], "usage": usage,
            "prompt_token_ids": prompt, "choices": [choice]}  # fmt: skip


def _parsed(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        call | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or ()
    ]
    return {"content": "", **message} | ({"tool_calls": calls} if calls else {})


@contextlib.contextmanager
def serving(world: Any) -> Iterator[str]:
    """Serve while the block runs; yield the address."""
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    async def complete(request: Request) -> JSONResponse:
        return JSONResponse(completion(world, await request.json()))

    with loopback.serving(complete) as address:
        yield address
