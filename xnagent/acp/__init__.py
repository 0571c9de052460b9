"""xnagent as an agent of editors: the Agent Client Protocol over stdin and stdout."""
