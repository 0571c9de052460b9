"""The tools that act on a workspace: bash, read, write, edit, grep, glob. Each truncates its own result."""
