"""The effect of an action: tool calls of any harness in, comparable normal forms out.

from composer_hub import actions

for step, context in actions.contexts(trace):
    form = actions.normalize(trace.messages[step.action], context)
actions.same(one, other, "L2")
"""

from composer_hub.actions.action import Action, Actions, action_at, actions_of
from composer_hub.actions.calls import call_in_text, command_of, path_of
from composer_hub.actions.commands import SimpleCommand, commands_in
from composer_hub.actions.context import contexts
from composer_hub.actions.forms import LEVELS, ActionContext, NormalForm, close, is_part_of, normalize, same
from composer_hub.actions.shell import Unparsable, parse_shell
from composer_hub.actions.tools import TOOLS, Tool, family_of_tool, kind_of, known_tool

__all__ = [
    "LEVELS",
    "TOOLS",
    "Action",
    "ActionContext",
    "Actions",
    "NormalForm",
    "SimpleCommand",
    "Tool",
    "Unparsable",
    "action_at",
    "actions_of",
    "call_in_text",
    "close",
    "command_of",
    "commands_in",
    "contexts",
    "family_of_tool",
    "is_part_of",
    "kind_of",
    "known_tool",
    "normalize",
    "parse_shell",
    "path_of",
    "same",
]
