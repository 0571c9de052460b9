"""Many sessions from one file of jobs: a dispatcher. The sessions are the truth."""
