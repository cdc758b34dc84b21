# The agent NAME. Standard input is the text of the message, and all that it prints is the answer; stderr is for the log.
text=$(cat)
printf 'You said: %s' "$text"
