"""The effect of an action: tool calls of any harness in, comparable normal forms out."""
