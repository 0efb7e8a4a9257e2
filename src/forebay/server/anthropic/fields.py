"""Every field of the Messages API, in tables as openai/fields.py has them: used, noted or refused.

Source: MessageCreateParams and MessageCountTokensParams of Anthropic's official client, 2.14; `temperature`, `top_p`
and `top_k` are of API version 2023-06-01, and serve with the later one too. Those marked (ours) are additions.
"""

from __future__ import annotations

from forebay.server.fields import SAMPLING, as_in_chat, noted, ours, refused, used
from forebay.server.openai.fields import FieldTable

_NO_SERVER_TOOLS = "tools of the server's own are not implemented"

_CACHE_CONTROL = noted("every prefix is cached, with a marker and without; lifetimes are not kept")
_DIRECT = {"type": "direct"}

COUNT_TOKENS_FIELDS: FieldTable = {
    "model": used("must be the name of the served model"),
    "messages": used("the conversation; a last message of the assistant's is continued"),
    "system": used("a string or text blocks: the first message the chat template gets"),
    "cache_control": _CACHE_CONTROL,
    "tools": used("functions the model may call; docs/tools.md has the formats of calls"),
    "tool_choice": used("auto, any, tool or none, with disable_parallel_tool_use"),
    "thinking": used("enabled with a budget of tokens, adaptive, or disabled"),
    "output_config": used("format: a JSON schema; effort: handed to the chat template"),
    "speed": refused("there is one speed", "standard"),
} | as_in_chat("chat_template_kwargs")

MESSAGES_FIELDS: FieldTable = (
    COUNT_TOKENS_FIELDS
    | {
        "max_tokens": used(
            "most tokens to generate; required, and at least 1: there is no call that only fills the cache"
        ),
        "stop_sequences": used("up to 16 strings that end the text and are not part of it"),
        "temperature": used("0 is greedy; absent: 1"),
        "top_p": used("nucleus sampling"),
        "top_k": used("keep the k best tokens; 0 keeps all"),
        "stream": used("server-sent events"),
        "seed": ours("the same seed gives the same tokens; drawn and reported when absent"),
        "min_p": ours("drop tokens below min_p times the best one's probability"),
        "ignore_eos": ours("generate up to max_tokens whatever the model says"),
        "metadata": noted("user_id names the end user; no effect on the output"),
        "service_tier": refused("there is one service tier", "auto", "standard_only"),
        "container": refused("containers are not implemented"),
        "inference_geo": refused("a server runs where it runs"),
        "diagnostics": refused("earlier requests are not kept to compare with", {}, {"previous_message_id": None}),
    }
    | as_in_chat(*SAMPLING)
)

TOOL_FIELDS: FieldTable = {
    "type": used("custom, which is also meant when it is absent"),
    "name": used("1 to 64 letters, digits, _ and -"),
    "description": used("told to the model"),
    "input_schema": used("a JSON schema of an object"),
    "strict": used("true: the input follows the schema; a keyword that cannot be enforced is refused by its pointer"),
    "cache_control": _CACHE_CONTROL,
    "eager_input_streaming": refused("inputs are streamed as they are generated", True),
    "defer_loading": refused("tool search is not implemented", False),
    "allowed_callers": refused("the model calls tools, and nothing else does", ["direct"]),
    "input_examples": refused("chat templates have no place for examples; put them into the description", []),
}

TOOL_CHOICE_FIELDS: FieldTable = {
    "type": used("auto, any, tool or none"),
    "name": used("of the tool, with type tool"),
    "disable_parallel_tool_use": used("true: at most one call"),
}

THINKING_FIELDS: FieldTable = {
    "type": used("enabled, adaptive or disabled"),
    "budget_tokens": used("with enabled: most tokens of reasoning; then it is ended"),
    "display": refused("reasoning is shown as it is, neither summarized nor left out", "summarized"),
}

OUTPUT_CONFIG_FIELDS: FieldTable = {
    "effort": used("handed to the chat template as reasoning_effort; refused if that does not use it"),
    "format": used("json_schema: the output is held to it"),
}

OUTPUT_FORMAT_FIELDS: FieldTable = {
    "type": used("json_schema"),
    "schema": used("a JSON Schema; a keyword that cannot be enforced is refused by its JSON pointer"),
}

MESSAGE_FIELDS: FieldTable = {
    "role": used("user, assistant or system"),
    "content": used("a string or a list of blocks"),
}

# The blocks a message may hold, by their type.
BLOCKS: FieldTable = {
    "text": used("blocks of one turn are joined by line ends"),
    "thinking": used("of the assistant: handed to the chat template, which shows it or not"),
    "tool_use": used("of the assistant: a call"),
    "tool_result": used("of the user: what came of a call, as text"),
    "image": refused("the model reads text"),
    "document": refused("the model reads text"),
    "search_result": refused("search results are not implemented; send them as text"),
    "redacted_thinking": refused("no reasoning is redacted here, so none can be read"),
    "server_tool_use": refused(_NO_SERVER_TOOLS),
    "web_search_tool_result": refused(_NO_SERVER_TOOLS),
    "web_fetch_tool_result": refused(_NO_SERVER_TOOLS),
    "code_execution_tool_result": refused(_NO_SERVER_TOOLS),
    "bash_code_execution_tool_result": refused(_NO_SERVER_TOOLS),
    "text_editor_code_execution_tool_result": refused(_NO_SERVER_TOOLS),
    "tool_search_tool_result": refused(_NO_SERVER_TOOLS),
    "container_upload": refused("containers are not implemented"),
}

# The same of a tool_result's content.
RESULT_BLOCKS: FieldTable = {
    "text": BLOCKS["text"],
    "image": BLOCKS["image"],
    "document": BLOCKS["document"],
    "search_result": BLOCKS["search_result"],
    "tool_reference": refused("tool search is not implemented"),
    "browser_state": refused(_NO_SERVER_TOOLS),
}

TEXT_BLOCK_FIELDS: FieldTable = {
    "type": used("text"),
    "text": used("the text"),
    "cache_control": _CACHE_CONTROL,
    "citations": refused("citations are not implemented", []),
}

THINKING_BLOCK_FIELDS: FieldTable = {
    "type": used("thinking"),
    "thinking": used("the text"),
    "signature": noted("nothing is signed here: ours are empty, and none is looked at"),
}

TOOL_USE_FIELDS: FieldTable = {
    "type": used("tool_use"),
    "id": used("what the tool_result answers"),
    "name": used("of the tool"),
    "input": used("the arguments"),
    "cache_control": _CACHE_CONTROL,
    "caller": refused("the model calls tools, and nothing else does", _DIRECT),
    "toolset_name": refused(_NO_SERVER_TOOLS),
}

TOOL_RESULT_FIELDS: FieldTable = {
    "type": used("tool_result"),
    "tool_use_id": used("the id of a tool_use before it"),
    "content": used("a string or a list of text blocks"),
    "is_error": noted("chat templates have no place for it: the content has to say what went wrong"),
    "cache_control": _CACHE_CONTROL,
    "toolset_name": refused(_NO_SERVER_TOOLS),
}

CACHE_CONTROL_FIELDS: FieldTable = {
    "type": noted("ephemeral"),
    "ttl": noted("5m or 1h; cached prefixes live until they are evicted"),
}

METADATA_FIELDS: FieldTable = {"user_id": noted("names the end user; no effect on the output")}
