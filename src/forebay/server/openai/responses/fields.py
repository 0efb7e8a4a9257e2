"""Every field of the Responses API, in tables as openai/fields.py has them: used, noted or refused.

Source: OpenAI's OpenAPI document 2.3.0, CreateResponse, EasyInputMessage, InputMessage, OutputMessage,
InputTextContent, OutputTextContent, FunctionTool, FunctionToolCall, FunctionCallOutputItemParam and ReasoningItem;
`access_programs`, `background_options`, `image`, `async` and the fields of input_tokens are those of its official
client, 3.57. Those marked (ours) are additions.
"""

from __future__ import annotations

from forebay.server.fields import SAMPLING, as_in_chat, noted, ours, refused, used
from forebay.server.openai.fields import FieldTable

_NO_CALLER = refused("the model calls functions, and nothing else does", {"type": "direct"})
_NO_NAMESPACE = refused("namespaces of tools are not implemented")
_SENT_BACK = noted("of an output item that is sent back")
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
    "input": used("a string, or a list of items: messages, function calls with their outputs, reasoning"),
    "instructions": used("a system message before the input"),
    "max_output_tokens": used("most tokens to generate; absent: min(context left, profile default), see the header"),
    "temperature": used("0 is greedy; absent: 1"),
    "top_p": used("nucleus sampling"),
    "include": used(f"{LOGPROBS}; the other names are of output that no response here has"),
    "top_logprobs": used("how many alternatives per token; above 0 it asks for log-probabilities, as include does"),
    "stream": used("server-sent events"),
    "text": used("format: text, json_object or json_schema; the output is held to it"),
    "tools": used("functions the model may call; docs/tools.md has the formats of calls"),
    "tool_choice": used("none, auto, required, a function, or allowed_tools"),
    "parallel_tool_calls": used("false: at most one call"),
    "reasoning": used("effort: handed to the chat template; refused if that does not use it"),
    "thinking_token_budget": ours("most tokens of reasoning; then it is ended"),
    "stop": ours("up to 16 strings that end the text and are not part of it"),
    "seed": ours("the same seed gives the same tokens; drawn and reported when absent"),
    "top_k": ours("keep the k best tokens; 0 keeps all"),
    "min_p": ours("drop tokens below min_p times the best one's probability"),
    "ignore_eos": ours("generate up to max_output_tokens whatever the model says"),
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
    "max_tool_calls": refused("built-in tools are not implemented"),
    "context_management": refused("compaction is not implemented"),
    "truncation": refused("no part of the input is dropped", "disabled"),
    "service_tier": refused("there is one service tier", "auto", "default"),
    "prompt_cache_retention": refused("cached prefixes live in memory until they are evicted", "in_memory"),
    "prompt_cache_options": refused("cache breakpoints and lifetimes are not implemented"),
    "moderation": refused("moderation is not implemented"),
    "image": refused("the model reads text"),
    "access_programs": refused("access programs are not implemented"),
} | as_in_chat(*SAMPLING)

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
        "chat_template_kwargs",
    )
} | {"personality": refused("the model has no personality setting")}

TEXT_FIELDS: FieldTable = {
    "format": used("text, json_object or json_schema"),
    "verbosity": refused("the model has no verbosity setting", "medium"),
}

STREAM_OPTIONS_FIELDS: FieldTable = {"include_obfuscation": refused("padding of events is not implemented", False)}

FORMAT_FIELDS: FieldTable = {
    "type": used("text, json_object or json_schema"),
    "name": used("with json_schema: names the schema in the record of the request"),
    "schema": used("with json_schema; a keyword that cannot be enforced is refused by its JSON pointer"),
    "strict": used("with json_schema: hold it to OpenAI's rules for strict ones; the output is held to it either way"),
    "description": noted("for people"),
}

REASONING_FIELDS: FieldTable = {
    "effort": used("handed to the chat template as reasoning_effort; refused if that does not use it"),
    "summary": refused("reasoning is not summarized: it is in the output as it is"),
    "generate_summary": refused("reasoning is not summarized: it is in the output as it is"),
    "context": refused("which reasoning is shown again is the chat template's choice", "auto"),
    "mode": refused("there is one mode", "standard"),
}

TOOL_FIELDS: FieldTable = {
    "type": used("function"),
    "name": used("1 to 64 letters, digits, _ and -"),
    "description": used("told to the model"),
    "parameters": used("a JSON schema of an object"),
    "strict": used("true: arguments follow the schema; absent: false"),
    "output_schema": refused("outputs are text to the model"),
    "defer_loading": refused("tool search is not implemented", False),
    "allowed_callers": refused("the model calls functions, and nothing else does", ["direct"]),
    "async": refused("calls are the client's to run", False),
}

NAMED_FIELDS: FieldTable = {"type": used("function"), "name": used("of the function")}

ALLOWED_FIELDS: FieldTable = {
    "type": used("allowed_tools"),
    "mode": used("auto or required"),
    "tools": used("those that may be called"),
}

CALL_FIELDS: FieldTable = {
    "type": used("function_call"),
    "call_id": used("what the output answers"),
    "name": used("of the function"),
    "arguments": used("JSON text; handed to the chat template as an object, if it is one"),
    "id": _SENT_BACK,
    "status": _SENT_BACK,
    "caller": _NO_CALLER,
    "namespace": _NO_NAMESPACE,
    "async": refused("calls are the client's to run", False),
}

OUTPUT_FIELDS: FieldTable = {
    "type": used("function_call_output"),
    "call_id": used("the call_id of a function_call before it"),
    "output": used("a string or a list of input_text parts"),
    "name": used("handed to the chat template"),
    "id": _SENT_BACK,
    "status": _SENT_BACK,
    "caller": _NO_CALLER,
    "namespace": _NO_NAMESPACE,
}

REASONING_ITEM_FIELDS: FieldTable = {
    "type": used("reasoning"),
    "content": used("a list of reasoning_text parts, handed to the chat template, which shows them or not"),
    "id": _SENT_BACK,
    "status": _SENT_BACK,
    "summary": refused("reasoning is not summarized: send it as content", []),
    "encrypted_content": refused("reasoning is not encrypted: send it as content"),
}

REASONING_PART_FIELDS: FieldTable = {"type": used("reasoning_text"), "text": used("the text")}

ITEM_FIELDS: FieldTable = {
    "type": used("message, which is also meant when it is absent"),
    "role": used("system, developer (rendered as system), user or assistant"),
    "content": used("a string or a list of text parts"),
    "id": _SENT_BACK,
    "status": _SENT_BACK,
    "phase": refused("the model has no phases"),
}

PART_FIELDS: FieldTable = {
    "type": used("input_text or output_text"),
    "text": used("the text"),
    "annotations": _SENT_BACK,
    "logprobs": _SENT_BACK,
    "prompt_cache_breakpoint": refused("cache breakpoints are not implemented"),
}
