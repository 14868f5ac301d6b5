"""What a tool call does: tool calls in, normal forms that can be compared out."""
