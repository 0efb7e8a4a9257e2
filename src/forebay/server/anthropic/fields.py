"""Every field of the Messages API, in tables as openai/fields.py has them: used, noted or refused.

Source: MessageCreateParams and MessageCountTokensParams of Anthropic's official client, 2.14; `temperature`, `top_p`
and `top_k` are of API version 2023-06-01, and serve with the later one too. `seed`, `min_p` and `ignore_eos` are ours.
"""

from __future__ import annotations

from forebay.server.fields import noted, refused, used
from forebay.server.openai.fields import FieldTable

_NO_TOOLS = "tool calls are not implemented"
_NO_THINKING = "reasoning is not told apart from the answer"

COUNT_TOKENS_FIELDS: FieldTable = {
    "model": used("must be the name of the served model"),
    "messages": used("the conversation; a last message of the assistant's is continued"),
    "system": used("a string or text blocks: the first message the chat template gets"),
    "cache_control": noted("every prefix is cached, with a marker and without; lifetimes are not kept"),
    "tools": refused(_NO_TOOLS, []),
    "tool_choice": refused(_NO_TOOLS, {"type": "auto"}, {"type": "none"}),
    "thinking": refused(_NO_THINKING, {"type": "disabled"}),
    "output_config": refused("structured output and effort are not implemented", {}),
    "speed": refused("there is one speed", "standard"),
}

MESSAGES_FIELDS: FieldTable = COUNT_TOKENS_FIELDS | {
    "max_tokens": used("most tokens to generate; required, and at least 1: there is no call that only fills the cache"),
    "stop_sequences": used("up to 16 strings that end the text and are not part of it"),
    "temperature": used("0 is greedy; absent: 1"),
    "top_p": used("nucleus sampling"),
    "top_k": used("keep the k best tokens; 0 keeps all"),
    "stream": used("server-sent events"),
    "seed": used("the same seed gives the same tokens; drawn and reported when absent (ours)"),
    "min_p": used("drop tokens below min_p times the best one's probability (ours)"),
    "ignore_eos": used("generate up to max_tokens whatever the model says (ours)"),
    "metadata": noted("user_id names the end user; no effect on the output"),
    "service_tier": refused("there is one service tier", "auto", "standard_only"),
    "container": refused("containers are not implemented"),
    "inference_geo": refused("a server runs where it runs"),
    "diagnostics": refused("earlier requests are not kept to compare with", {}, {"previous_message_id": None}),
}

MESSAGE_FIELDS: FieldTable = {
    "role": used("user, assistant or system"),
    "content": used("a string or a list of text blocks"),
}

# The blocks a message may hold, by their type: where a kind of block gets its use.
BLOCKS: FieldTable = {
    "text": used("blocks of one turn are joined by line ends"),
    "image": refused("the model reads text"),
    "document": refused("the model reads text"),
    "search_result": refused("search results are not implemented; send them as text"),
    "thinking": refused(_NO_THINKING),
    "redacted_thinking": refused(_NO_THINKING),
    "tool_use": refused(_NO_TOOLS),
    "tool_result": refused(_NO_TOOLS),
    "server_tool_use": refused(_NO_TOOLS),
    "web_search_tool_result": refused(_NO_TOOLS),
    "web_fetch_tool_result": refused(_NO_TOOLS),
    "code_execution_tool_result": refused(_NO_TOOLS),
    "bash_code_execution_tool_result": refused(_NO_TOOLS),
    "text_editor_code_execution_tool_result": refused(_NO_TOOLS),
    "tool_search_tool_result": refused(_NO_TOOLS),
    "container_upload": refused("containers are not implemented"),
}

TEXT_BLOCK_FIELDS: FieldTable = {
    "type": used("text"),
    "text": used("the text"),
    "cache_control": COUNT_TOKENS_FIELDS["cache_control"],
    "citations": refused("citations are not implemented", []),
}

CACHE_CONTROL_FIELDS: FieldTable = {
    "type": noted("ephemeral"),
    "ttl": noted("5m or 1h; cached prefixes live until they are evicted"),
}

METADATA_FIELDS: FieldTable = {"user_id": noted("names the end user; no effect on the output")}
