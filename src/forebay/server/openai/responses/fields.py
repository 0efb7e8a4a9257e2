"""Every field of the Responses API, in tables as openai/fields.py has them: used, noted or refused.

Source: OpenAI's OpenAPI document 2.3.0, CreateResponse, EasyInputMessage, InputMessage, OutputMessage, InputTextContent
and OutputTextContent; `access_programs`, `background_options`, `image` and the fields of input_tokens are those of its
official client, 3.57. `seed`, `top_k`, `min_p` and `ignore_eos` are our own additions.
"""

from __future__ import annotations

from forebay.server.fields import noted, refused, used
from forebay.server.openai.fields import FieldTable

_NO_TOOLS = "tool calls are not implemented"
_NOT_STORED = "responses are not stored"

# What output can be asked for beside the text, by its name in `include`.
LOGPROBS = "message.output_text.logprobs"
ABSENT_OUTPUT = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
)

RESPONSE_FIELDS: FieldTable = {
    "model": used("must be the name of the served model"),
    "input": used("a string, or a list of messages"),
    "instructions": used("a system message before the input"),
    "max_output_tokens": used("most tokens to generate; absent: min(context left, profile default), see the header"),
    "temperature": used("0 is greedy; absent: 1"),
    "top_p": used("nucleus sampling"),
    "include": used(f"{LOGPROBS}; the other names are of output that no response here has"),
    "top_logprobs": used("how many alternatives per token; above 0 it asks for log-probabilities, as include does"),
    "stream": used("server-sent events"),
    "text": used("format: text"),
    "seed": used("the same seed gives the same tokens; drawn and reported when absent (ours)"),
    "top_k": used("keep the k best tokens; 0 keeps all (ours)"),
    "min_p": used("drop tokens below min_p times the best one's probability (ours)"),
    "ignore_eos": used("generate up to max_output_tokens whatever the model says (ours)"),
    "metadata": noted("labels, which the response repeats; nothing is stored"),
    "user": noted("names the end user; no effect on the output"),
    "safety_identifier": noted("names the end user; no effect on the output"),
    "prompt_cache_key": noted("a routing hint for a fleet of caches; one server has one cache"),
    "stream_options": noted("include_obfuscation: false"),
    "store": refused(f"{_NOT_STORED}; absent means false here", False),
    "previous_response_id": refused(f"{_NOT_STORED}; send the conversation as input"),
    "conversation": refused("conversations are not stored; send the conversation as input"),
    "background": refused(f"{_NOT_STORED}, so none could be fetched later", False),
    "background_options": refused(f"{_NOT_STORED}, so none could be fetched later"),
    "prompt": refused("prompt templates are not stored; send the text as input"),
    "tools": refused(_NO_TOOLS, []),
    "tool_choice": refused(_NO_TOOLS, "none", "auto"),
    "parallel_tool_calls": refused(_NO_TOOLS, True),
    "max_tool_calls": refused(_NO_TOOLS),
    "reasoning": refused("the model has no reasoning setting", {}, {"effort": None, "summary": None}),
    "context_management": refused("compaction is not implemented"),
    "truncation": refused("no part of the input is dropped", "disabled"),
    "service_tier": refused("there is one service tier", "auto", "default"),
    "prompt_cache_retention": refused("cached prefixes live in memory until they are evicted", "in_memory"),
    "prompt_cache_options": refused("cache breakpoints and lifetimes are not implemented"),
    "moderation": refused("moderation is not implemented"),
    "image": refused("the model reads text"),
    "access_programs": refused("access programs are not implemented"),
}

INPUT_TOKENS_FIELDS: FieldTable = {
    name: RESPONSE_FIELDS[name]
    for name in (
        "model",
        "input",
        "instructions",
        "text",
        "previous_response_id",
        "conversation",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning",
        "truncation",
    )
} | {"personality": refused("the model has no personality setting")}

TEXT_FIELDS: FieldTable = {
    "format": refused("structured output is not implemented", {"type": "text"}),
    "verbosity": refused("the model has no verbosity setting", "medium"),
}

STREAM_OPTIONS_FIELDS: FieldTable = {"include_obfuscation": refused("padding of events is not implemented", False)}

ITEM_FIELDS: FieldTable = {
    "type": used("message, which is also meant when it is absent"),
    "role": used("system, developer (rendered as system), user or assistant"),
    "content": used("a string or a list of text parts"),
    "id": noted("of an output message that is sent back"),
    "status": noted("of an output message that is sent back"),
    "phase": refused("the model has no phases"),
}

PART_FIELDS: FieldTable = {
    "type": used("input_text or output_text"),
    "text": used("the text"),
    "annotations": noted("of an output message that is sent back"),
    "logprobs": noted("of an output message that is sent back"),
    "prompt_cache_breakpoint": refused("cache breakpoints are not implemented"),
}
