# The agent NAME. It reads one JSON object, and all that it prints is the answer; stderr is for the log.
# The first text of the message, cut out without a JSON tool: with jq it is `jq -r .message.parts[0].text`.
text=$(sed 's/,"history":.*//' | grep -o '"text":"\([^"\\]\|\\.\)*"' | head -n 1 | sed 's/^"text":"//; s/"$//')
printf 'You said: %s' "$text"
